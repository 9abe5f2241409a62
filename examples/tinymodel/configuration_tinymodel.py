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
"""TinyModel's configuration: sizes, and which layers look at a window only."""

from transformers import PreTrainedConfig


class TinyModelConfig(PreTrainedConfig):
    model_type = "tinymodel"
    keys_to_ignore_at_inference = ["past_key_values"]

    vocab_size: int = 512
    hidden_size: int = 128
    intermediate_size: int = 320
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    tie_word_embeddings: bool = True
    rope_parameters: dict | None = None
    sliding_window: int = 16
    # One entry per layer. Left out, every second layer attends within the window.
    layer_types: list[str] | None = None

    def __post_init__(self, **kwargs):
        if self.layer_types is None:
            self.layer_types = [
                "full_attention" if layer % 2 else "sliding_attention" for layer in range(self.num_hidden_layers)
            ]
        super().__post_init__(**kwargs)


__all__ = ["TinyModelConfig"]
