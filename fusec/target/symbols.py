"""Every symbol of vLLM that ports use, where it is imported from, and how it is called.

The import paths are those that all versions of ``ENGINE_RANGE`` have. :mod:`fusec.target.inspect`
holds the table against the source of an engine.

A call is written as its arguments, in one string:
    ``name!``   passed in every call, and at this position where it is passed by position
    ``name``    passed in every call, by keyword
    ``name?``   passed by keyword in some calls
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["class", "function", "object"]

FIRST_TESTED = "0.32"
LAST_TESTED = "0.33"


@dataclass(frozen=True)
class Call:
    """The arguments of a call, by how they are passed."""

    by_position: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.by_position, *self.always, *self.sometimes)


@dataclass(frozen=True)
class Symbol:
    """One name that ports import.

    ``call`` is ``None`` where ports do not call it; ``members`` are attributes of a class that
    they use, with the call where it is a method. ``first`` and ``last`` are the versions of vLLM
    with which it was tested.
    """

    module: str
    name: str
    kind: Kind
    call: Call | None = None
    members: Mapping[str, Call | None] = field(default_factory=dict)
    first: str = FIRST_TESTED
    last: str = LAST_TESTED

    @property
    def import_line(self) -> str:
        return f"from {self.module} import {self.name}"


def call(arguments: str) -> Call:
    """Parse the notation of the module's docstring."""
    words = arguments.split()
    return Call(
        by_position=tuple(word[:-1] for word in words if word.endswith("!")),
        always=tuple(word for word in words if word[-1] not in "!?"),
        sometimes=tuple(word[:-1] for word in words if word.endswith("?")),
    )


def _symbol(module: str, name: str, kind: Kind, arguments: str | None = None, **members: str | None) -> Symbol:
    used = {member: None if text is None else call(text) for member, text in members.items()}
    return Symbol(f"vllm.{module}".rstrip("."), name, kind, None if arguments is None else call(arguments), used)


_LAYERS = "model_executor.layers"
_MODELS = "model_executor.models"

_TABLE: tuple[Symbol, ...] = (
    # linear layers; a call gives (output, bias or None)
    _symbol(
        f"{_LAYERS}.linear", "QKVParallelLinear", "class",
        "hidden_size! head_size! total_num_heads! total_num_kv_heads! bias? quant_config? prefix? v_head_size? "
        "return_bias? disable_tp?",
        weight_loader="param! loaded_weight! loaded_shard_id?",
    ),
    _symbol(
        f"{_LAYERS}.linear", "MergedColumnParallelLinear", "class",
        "input_size! output_sizes! bias? gather_output? quant_config? prefix? return_bias? disable_tp?",
        weight_loader="param! loaded_weight! loaded_shard_id?",
    ),
    _symbol(
        f"{_LAYERS}.linear", "ColumnParallelLinear", "class",
        "input_size! output_size! bias? gather_output? quant_config? prefix? return_bias? disable_tp?",
        forward="input_!",
    ),
    _symbol(
        f"{_LAYERS}.linear", "RowParallelLinear", "class",
        "input_size! output_size! bias? input_is_parallel? reduce_results? quant_config? prefix? return_bias? "
        "disable_tp?",
        forward="input_!",
    ),
    _symbol(
        f"{_LAYERS}.linear", "ReplicatedLinear", "class",
        "input_size! output_size! bias? quant_config? prefix? return_bias?",
        forward="x!",
    ),
    # norms; with a residual, a call gives (output, new residual)
    _symbol(f"{_LAYERS}.layernorm", "RMSNorm", "class", "hidden_size! eps? has_weight? dtype? var_hidden_size?",
            forward_native="x! residual?"),
    _symbol(f"{_LAYERS}.layernorm", "GemmaRMSNorm", "class", "hidden_size! eps?", forward_native="x! residual?"),
    # activations
    _symbol(f"{_LAYERS}.activation", "SiluAndMul", "class", ""),
    _symbol(f"{_LAYERS}.activation", "GeluAndMul", "class", "approximate?"),
    _symbol(f"{_LAYERS}.activation", "get_act_and_mul_fn", "function", "act_fn_name!"),
    _symbol(f"{_LAYERS}.activation", "get_act_fn", "function", "act_fn_name!"),
    # position and attention
    _symbol(f"{_LAYERS}.rotary_embedding", "get_rope", "function",
            "head_size! max_position is_neox_style? rope_parameters? dtype?"),
    _symbol(
        f"{_LAYERS}.attention", "Attention", "class",
        "num_heads! head_size! scale! num_kv_heads? alibi_slopes? cache_config? quant_config? logits_soft_cap? "
        "per_layer_sliding_window? prefix? attn_type? kv_sharing_target_layer_name?",
        forward="query! key! value!",
    ),
    _symbol(f"{_LAYERS}.rotary_embedding.base", "RotaryEmbedding", "class",
            "head_size! rotary_dim! max_position_embeddings! base! is_neox_style! dtype! init_cache?",
            forward_native="positions! query! key?", _compute_cos_sin_cache=""),
    _symbol("v1.attention.backend", "AttentionType", "class", DECODER=None, ENCODER_ONLY=None),
    # embedding and head
    _symbol(
        f"{_LAYERS}.vocab_parallel_embedding", "VocabParallelEmbedding", "class",
        "num_embeddings! embedding_dim! quant_config? prefix?", forward="input_!",
    ),
    _symbol(
        f"{_LAYERS}.vocab_parallel_embedding", "ParallelLMHead", "class",
        "num_embeddings! embedding_dim! bias? quant_config? prefix?", tie_weights="embed_tokens!",
    ),
    _symbol(f"{_LAYERS}.logits_processor", "LogitsProcessor", "class", "vocab_size! scale? soft_cap?",
            forward="lm_head! hidden_states! embedding_bias?"),
    # the model's frame
    _symbol("compilation.decorators", "support_torch_compile", "function", "cls! dynamic_arg_dims? enable_if?"),
    _symbol("sequence", "IntermediateTensors", "class", "tensors!", __getitem__="key!"),
    _symbol(f"{_MODELS}.utils", "make_layers", "function", "num_hidden_layers! layer_fn! prefix!"),
    _symbol(f"{_MODELS}.utils", "PPMissingLayer", "class", ""),
    _symbol(f"{_MODELS}.utils", "make_empty_intermediate_tensors_factory", "function", "keys! hidden_size!"),
    _symbol(f"{_MODELS}.utils", "maybe_prefix", "function", "prefix! name!"),
    _symbol(f"{_MODELS}.utils", "extract_layer_index", "function", "layer_name!"),
    _symbol(f"{_MODELS}.utils", "is_pp_missing_parameter", "function", "name! model!"),
    # weights
    _symbol(f"{_MODELS}.utils", "AutoWeightsLoader", "class",
            "module! ignore_unexpected_prefixes? ignore_unexpected_suffixes?", load_weights="weights! mapper?"),
    _symbol(f"{_MODELS}.utils", "WeightsMapper", "class",
            "orig_to_new_prefix? orig_to_new_substr? orig_to_new_suffix? orig_to_new_stacked? orig_to_new_regex?"),
    _symbol("model_executor.model_loader.weight_utils", "default_weight_loader", "function", "param! loaded_weight!"),
    _symbol("model_executor.model_loader.weight_utils", "maybe_remap_kv_scale_name", "function", "name! params_dict!"),
    _symbol(f"{_LAYERS}.linear", "UnquantizedLinearMethod", "class"),
    _symbol(f"{_LAYERS}.vocab_parallel_embedding", "UnquantizedEmbeddingMethod", "class"),
    # interfaces that a model class declares
    _symbol(f"{_MODELS}.interfaces", "SupportsPP", "class"),
    _symbol(f"{_MODELS}.interfaces", "SupportsLoRA", "class", packed_modules_mapping=None),
    _symbol(f"{_MODELS}.interfaces", "SupportsQuant", "class", packed_modules_mapping=None),
    # parallel state
    _symbol("distributed", "get_pp_group", "function", ""),
    _symbol("distributed", "get_tensor_model_parallel_world_size", "function", ""),
    _symbol("distributed", "get_tensor_model_parallel_rank", "function", ""),
    _symbol("distributed", "tensor_model_parallel_all_gather", "function", "input_! dim?"),
    _symbol("distributed", "tensor_model_parallel_all_reduce", "function", "input_!"),
    # configuration
    _symbol("config", "VllmConfig", "class",
            model_config=None, cache_config=None, quant_config=None, parallel_config=None, load_config=None),
    _symbol("config", "ModelConfig", "class", hf_config=None, hf_text_config=None, max_model_len=None,
            model_impl=None, word_embeddings_untied_by_checkpoint=None),
    _symbol("config", "LoadConfig", "class", load_format=None),
    _symbol("config", "get_current_vllm_config", "function", ""),
    _symbol("config", "CacheConfig", "class"),
    _symbol(f"{_LAYERS}.quantization", "QuantizationConfig", "class"),
    _symbol("logger", "init_logger", "function", "name!"),
    # registration: the emitted package's _registry.py
    _symbol("", "ModelRegistry", "object"),
    _symbol("", "__version__", "object"),
    _symbol(
        f"{_MODELS}.registry", "_ModelRegistry", "class", "models?",
        register_model="model_arch! model_cls!",
        inspect_model_cls="architectures! model_config!",
        resolve_model_cls="architectures! model_config!",
        _normalize_arch="architecture! model_config!",
    ),
)  # fmt: skip

SYMBOLS: Mapping[str, Symbol] = {symbol.name: symbol for symbol in _TABLE}
