"""Rotary embeddings whose cos/sin table is the one transformers computes for the same config.

vLLM's `get_rope` gives that table for the rope types listed in `_PARAMETERS` below, once the
parameters are spelled out. For the other types its arithmetic or its choice of table differs, and the
frequencies come from transformers instead.
"""

import math
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

logger = init_logger(f"vllm.plugins.{__name__}")

# The parameters that transformers reads, per rope type. Anything else in `rope_parameters` is left behind:
# `get_rope` gives a meaning to keys that transformers ignores (`rope_dim`, `alpha`, `mrope_section`, ...).
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "default": (),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
}

_shared: dict[tuple[Any, ...], RotaryEmbedding] = {}


class TransformersRotaryEmbedding(RotaryEmbedding):
    """A rotary embedding over transformers' frequencies for `config`, for sequences of up to `seq_len` tokens."""

    def __init__(
        self,
        config: PretrainedConfig,
        seq_len: int,
        head_size: int,
        rotary_dim: int,
        max_position: int,
        is_neox_style: bool,
        dtype: torch.dtype,
    ) -> None:
        self.config = config
        self.seq_len = seq_len
        base = config.rope_parameters["rope_theta"]
        super().__init__(head_size, rotary_dim, max_position, base, is_neox_style, dtype)

    def _compute_cos_sin_cache(self) -> torch.Tensor:
        """The table, `[max_position, rotary_dim]`: a row's first half is the cosines, its second half the sines."""
        rope_type = self.config.rope_parameters["rope_type"]
        inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[rope_type](self.config, seq_len=self.seq_len)
        positions = torch.arange(self.max_position_embeddings, dtype=torch.float)
        freqs = torch.outer(positions, inv_freq)
        return torch.cat((freqs.cos() * attention_factor, freqs.sin() * attention_factor), dim=-1)


def get_rotary(
    config: PretrainedConfig,
    head_dim: int,
    *,
    rotary_dim: int | None = None,
    is_neox_style: bool = True,
    max_model_len: int | None = None,
) -> nn.Module:
    """The rotary embedding that transformers applies under `config`.

    Args:
        config: read for `rope_parameters` and `max_position_embeddings`.
        head_dim: elements per head.
        rotary_dim: how many of them are rotated; all when None.
        is_neox_style: pair element i with i + rotary_dim / 2 (True) or with its neighbour (False).
        max_model_len: the longest sequence that will be served, in tokens; the engine's when None.

    Raises:
        ValueError: no table equals what transformers computes.
    """
    if max_model_len is None:
        max_model_len = get_current_vllm_config().model_config.max_model_len
    config.standardize_rope_params()  # a top-level original_max_position_embeddings wins over the nested one
    rope_type = config.rope_parameters["rope_type"]
    rotary_dim = rotary_dim or head_dim
    _refuse_unequal(config, head_dim, rotary_dim, max_model_len)
    # The engine may be told to go past what the config says; every position must have a row.
    max_position = max(config.max_position_embeddings, max_model_len)

    parameters = _get_rope_parameters(config, rotary_dim, max_position)
    if parameters is not None:
        return get_rope(head_dim, max_position=max_position, is_neox_style=is_neox_style, rope_parameters=parameters)

    if rope_type == "longrope" and max_model_len > (trained := _trained_length(config)):
        logger.warning_once(
            "rope_type 'longrope' with max_model_len %d: the long factors are used for every sequence. transformers "
            "uses the short ones for sequences of up to %d tokens; set max_model_len to %d to have those.",
            max_model_len,
            trained,
            trained,
        )
    dtype = torch.get_default_dtype()
    facts = (repr(config.rope_parameters), config.max_position_embeddings)
    key = (*facts, max_model_len, head_dim, rotary_dim, is_neox_style, dtype)
    if key not in _shared:  # one table for all layers, as get_rope has it
        _shared[key] = TransformersRotaryEmbedding(
            config, max_model_len, head_dim, rotary_dim, max_position, is_neox_style, dtype
        )
    return _shared[key]


def _refuse_unequal(config: PretrainedConfig, head_dim: int, rotary_dim: int, max_model_len: int) -> None:
    """Raise ValueError where one table of width `rotary_dim` cannot be what transformers computes."""
    rope = config.rope_parameters
    rope_type = rope["rope_type"]
    if rope_type != "default" and rope_type not in ROPE_INIT_FUNCTIONS:
        raise ValueError(
            f"rope_type {rope_type!r} is not one that transformers knows: {', '.join(ROPE_INIT_FUNCTIONS)}"
        )
    if rope_type == "dynamic" and max_model_len > config.max_position_embeddings:
        raise ValueError(
            f"rope_type 'dynamic' rescales the rotary table with the length of each sequence past "
            f"{config.max_position_embeddings} tokens, which one table cannot express: "
            f"start the engine with max_model_len={config.max_position_embeddings} (it is {max_model_len})"
        )
    if rope_type not in ("default", "proportional"):  # these two are as wide as the modeling code says
        width = int(head_dim * rope.get("partial_rotary_factor", 1.0))
        if width != rotary_dim:
            raise ValueError(
                f"partial_rotary_factor {rope['partial_rotary_factor']} makes rope_type {rope_type!r} "
                f"{width} elements wide, but this model rotates {rotary_dim} of each head"
            )


def _trained_length(config: PretrainedConfig) -> int:
    """Tokens up to which 'longrope' uses its short factors."""
    length: int = config.rope_parameters["original_max_position_embeddings"]
    return length


def _get_rope_parameters(config: PretrainedConfig, rotary_dim: int, max_position: int) -> dict[str, Any] | None:
    """The `rope_parameters` that make `get_rope` build transformers' table, or None when none do."""
    rope = config.rope_parameters
    # Up to max_position_embeddings (see _refuse_unequal) the dynamic type is the default one.
    rope_type = "default" if rope["rope_type"] == "dynamic" else rope["rope_type"]
    if rope_type not in _PARAMETERS:
        return None
    parameters = {"rope_type": rope_type, "rope_theta": rope["rope_theta"], "rope_dim": rotary_dim}
    parameters |= {key: rope[key] for key in _PARAMETERS[rope_type] if rope.get(key) is not None}
    if rope_type == "yarn":
        trained = rope["original_max_position_embeddings"]
        parameters.setdefault("factor", config.max_position_embeddings / trained)
        parameters["truncate"] = bool(rope.get("truncate", True))
        for key in ("beta_fast", "beta_slow"):
            if not rope.get(key):  # transformers takes 0 as not given
                parameters.pop(key, None)
        if math.ceil(trained * parameters["factor"]) < max_position:
            return None  # get_rope's table would end there
    return parameters
