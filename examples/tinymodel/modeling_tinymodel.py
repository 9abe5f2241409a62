# Copyright 2026 The fusec authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""TinyModel: a small decoder to convert, with the traits that a port has to carry over.

Grouped queries, a norm on every query and key head, a sliding window on every second
layer, and an output head that shares the embedding's weight.
"""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_tinymodel import TinyModelConfig


class TinyModelRMSNorm(nn.Module):
    """Scales a vector to unit mean square; the mean is taken in float32 whatever the input is."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


class TinyModelRotaryEmbedding(nn.Module):
    """The cosines and sines by which each position turns the pairs of a head."""

    def __init__(self, config: TinyModelConfig):
        super().__init__()
        self.base = config.rope_parameters["rope_theta"]
        self.head_dim = config.head_dim

    @torch.no_grad()
    def forward(self, x, position_ids):
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float, device=x.device) / self.head_dim
        angles = position_ids[..., None].float() / self.base**exponents
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def turn(x, cos, sin):
    """Turns pair (i, i + half) of every head by its angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """Attention in plain torch, for where no kernel is chosen."""
    groups = module.num_key_value_groups
    key = key.repeat_interleave(groups, dim=1)
    value = value.repeat_interleave(groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class TinyModelAttention(nn.Module):
    """Grouped-query attention, over everything before or over a window, as the layer's type says."""

    def __init__(self, config: TinyModelConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = True
        self.sliding_window = config.sliding_window if config.layer_types[layer_idx] == "sliding_attention" else None

        self.q_proj = nn.Linear(config.hidden_size, config.num_attention_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, config.num_key_value_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * self.head_dim, config.hidden_size, bias=False)
        self.q_norm = TinyModelRMSNorm(self.head_dim, eps=config.rms_norm_eps)
        self.k_norm = TinyModelRMSNorm(self.head_dim, eps=config.rms_norm_eps)

    def forward(self, hidden_states, position_embeddings, attention_mask=None, past_key_values=None, **kwargs):
        batch, length, _ = hidden_states.shape
        queries = self.q_proj(hidden_states).view(batch, length, -1, self.head_dim)
        keys = self.k_proj(hidden_states).view(batch, length, -1, self.head_dim)
        values = self.v_proj(hidden_states).view(batch, length, -1, self.head_dim)
        # Every head is brought to unit scale before it is turned.
        queries = self.q_norm(queries).transpose(1, 2)
        keys = self.k_norm(keys).transpose(1, 2)
        values = values.transpose(1, 2)

        cos, sin = (table.unsqueeze(1) for table in position_embeddings)
        queries, keys = turn(queries, cos, sin), turn(keys, cos, sin)

        if past_key_values is not None:
            keys, values = past_key_values.update(keys, values, self.layer_idx)

        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        output, weights = attention(
            self,
            queries,
            keys,
            values,
            attention_mask,
            scaling=self.scaling,
            sliding_window=self.sliding_window,
            **kwargs,
        )
        return self.o_proj(output.reshape(batch, length, -1)), weights


class TinyModelMLP(nn.Module):
    """A gated feed-forward network."""

    def __init__(self, config: TinyModelConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class TinyModelDecoderLayer(nn.Module):
    """Attention and feed-forward, each reading a normed copy of what it adds to."""

    def __init__(self, config: TinyModelConfig, layer_idx: int):
        super().__init__()
        self.self_attn = TinyModelAttention(config, layer_idx)
        self.mlp = TinyModelMLP(config)
        self.input_layernorm = TinyModelRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = TinyModelRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, hidden_states, **kwargs):
        attended, _ = self.self_attn(self.input_layernorm(hidden_states), **kwargs)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class TinyModelPreTrainedModel(PreTrainedModel):
    config_class = TinyModelConfig
    base_model_prefix = "model"
    _no_split_modules = ["TinyModelDecoderLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True


class TinyModelModel(TinyModelPreTrainedModel):
    """Embedding, layers, and the norm after them."""

    def __init__(self, config: TinyModelConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(TinyModelDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = TinyModelRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = TinyModelRotaryEmbedding(config)
        self.post_init()

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        use_cache: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        use_cache = use_cache if use_cache is not None else self.config.use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device).unsqueeze(0) + seen

        mask_arguments = {
            "config": self.config,
            "inputs_embeds": inputs_embeds,
            "attention_mask": attention_mask,
            "past_key_values": past_key_values,
            "position_ids": position_ids,
        }
        masks = {
            "full_attention": create_causal_mask(**mask_arguments),
            "sliding_attention": create_sliding_window_causal_mask(**mask_arguments),
        }

        hidden_states = inputs_embeds
        position_embeddings = self.rotary_emb(hidden_states, position_ids)
        for layer_idx, layer in enumerate(self.layers):
            hidden_states = layer(
                hidden_states,
                position_embeddings=position_embeddings,
                attention_mask=masks[self.config.layer_types[layer_idx]],
                past_key_values=past_key_values,
                **kwargs,
            )
        return BaseModelOutputWithPast(
            last_hidden_state=self.norm(hidden_states),
            past_key_values=past_key_values if use_cache else None,
        )


class TinyModelForCausalLM(TinyModelPreTrainedModel, GenerationMixin):
    """TinyModel with its output head, which is the embedding read backwards."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: TinyModelConfig):
        super().__init__(config)
        self.model = TinyModelModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs,
    ) -> CausalLMOutputWithPast:
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept, :])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=outputs.past_key_values)


__all__ = ["TinyModelForCausalLM", "TinyModelModel", "TinyModelPreTrainedModel"]
