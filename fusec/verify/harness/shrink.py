"""Shrinks a model's config to a size that runs in seconds, and keeps every choice in it that is not a size.

Sizes are found by name (what a key is called says what it measures) and by equality (a key of unknown name whose
value equals a size that was shrunk measures the same thing). Relations that decide which code runs are kept: as many
kv heads as heads, one, or in between; heads that do not fill the hidden size; the ratio of the extended to the
original context; every kind of layer that occurs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

LAYERS = 4
MOST_LAYERS = 16
HEADS = 4
HEAD_DIM = 32
VOCABULARY = 384
POSITIONS = 256
ORIGINAL_POSITIONS = 64
# A ratio of contexts above this one gives tables that take longer to fill than the model to run.
LARGEST_CONTEXT_RATIO = 64

# What a size is called, over the decoder families of transformers, by what it measures.
SIZE_NAMES: tuple[tuple[int, str], ...] = (
    # the width of the residual stream
    (128, "hidden_size n_embd d_model dim model_dim embed_dim embedding_dim emb_dim embedding_size"),
    (128, "input_embedding_size hidden_dim n_state word_embed_proj_dim lru_width"),
    # the width inside a feed-forward block
    (256, "intermediate_size n_inner ffn_dim ffn_hidden_size d_ff d_inner mlp_dim dense_intermediate_size dim_ff"),
    (VOCABULARY, "vocab_size text_vocab_size vocab_size_per_layer_input"),
    # how far attention sees: less than any prompt of the checks
    (8, "sliding_window sliding_window_size"),
    (16, "attention_chunk_size attention_window_size"),
    # experts: how many, how wide, how many are used
    (8, "num_experts n_routed_experts num_local_experts moe_num_experts n_experts"),
    (64, "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size"),
    (64, "shared_intermediate_size expert_ffn_size expert_ffn_hidden_size moe_shared_intermediate_size"),
    (64, "moe_latent_size"),
    (2, "num_experts_per_tok num_experts_per_token moe_topk moe_k top_k_experts moe_top_k n_group"),
    (1, "topk_group n_shared_experts num_shared_experts first_k_dense_replace moe_layer_start_index"),
    # low-rank attention, in the sizes that the engine's kernels know
    (64, "q_lora_rank v_head_dim qk_rope_head_dim qk_nope_head_dim"),
    (512, "kv_lora_rank"),
    # side channels and states
    (16, "hidden_size_per_layer_input state_size ssm_state_size"),
    (8, "laurel_rank adapter_rank"),
)
SIZES: dict[str, int] = {name: size for size, names in SIZE_NAMES for name in names.split()}

LAYER_COUNTS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_decoder_layers",
    "decoder_layers",
    "num_blocks",
)
HEAD_COUNTS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
KV_HEAD_COUNTS = (
    "num_key_value_heads",
    "n_kv_heads",
    "num_kv_heads",
    "kv_n_heads",
    "multi_query_group_num",
    "n_head_kv",
)
HEAD_DIMS = (
    "head_dim",
    "attention_head_dim",
    "kv_channels",
    "dim_head",
    "attention_head_size",
    "d_kv",
    "attn_head_dim",
)
HIDDEN_SIZES = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
CONTEXTS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "context_length",
    "max_target_positions",
    "max_seq_length",
)
ROPE_TABLES = ("rope_parameters", "rope_scaling")
# Not a size, and not a choice that changes the computation of a freshly made float32 checkpoint.
LEFT_OUT = ("quantization_config", "_name_or_path", "torch_dtype", "dtype", "_attn_implementation")
# At its own size a norm's epsilon is lost in the rounding, and so would a wrong one be.
EPSILONS = ("_eps", "_epsilon")
EPSILON_FACTOR = 1000.0
LARGEST_EPSILON = 1e-2
# Below this, equality of two numbers says nothing about what they measure.
SMALLEST_TELLING_SIZE = 192


def _first(config: Mapping[str, Any], names: Sequence[str]) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _spread(values: Sequence[Any], size: int) -> list[Any]:
    """``size`` of ``values``, evenly spread, first and last among them."""
    if size <= 1:
        return list(values[:size])
    return [values[round(i * (len(values) - 1) / (size - 1))] for i in range(size)]


def choose_layers(per_layer: Sequence[Sequence[Any]], count: int) -> list[int]:
    """The indices of the layers to keep: at least :data:`LAYERS`, so that each combination of the values that the
    per-layer lists (each of length ``count``) give to a layer still occurs, up to :data:`MOST_LAYERS`."""
    kinds: dict[str, int] = {}
    for index in range(count):
        kinds.setdefault(repr([values[index] for values in per_layer]), index)
    chosen = sorted(kinds.values())[:MOST_LAYERS]
    for index in _spread(range(count), LAYERS):
        if len(chosen) >= LAYERS:
            break
        if index not in chosen:
            chosen.append(index)
    spare = 0
    while len(chosen) < LAYERS:  # a model of fewer layers than that: its layers again
        chosen.append(spare % count)
        spare += 1
    return sorted(chosen)


def _shrink_rope(table: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """A rope table (or one table per kind of layer) for heads that are ``scale`` times as wide."""
    tiny: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            tiny[key] = _shrink_rope(value, scale)
        elif key == "original_max_position_embeddings" and value:
            tiny[key] = ORIGINAL_POSITIONS
        elif key.endswith("_factor") and isinstance(value, list):
            tiny[key] = _spread(value, max(1, round(len(value) * scale)))
        elif key.endswith("_section") and isinstance(value, list):
            parts = [max(1, int(part * scale)) for part in value]
            parts[0] += round(sum(value) * scale) - sum(parts)
            tiny[key] = parts
        else:
            tiny[key] = copy.deepcopy(value)
    return tiny


def rope_tables(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rope tables of a config: the one it states, or one for each kind of layer."""
    tables = [config[key] for key in ROPE_TABLES if isinstance(config.get(key), Mapping)]
    return tables + [inner for table in tables for inner in table.values() if isinstance(inner, Mapping)]


def _context_ratio(config: Mapping[str, Any]) -> float | None:
    """How many times the original context the model was extended to, where the config states both."""
    extended = _first(config, CONTEXTS)
    for table in [config, *rope_tables(config)]:
        original = _first(table, ["original_max_position_embeddings"])
        if original and extended:
            return extended / original
    return None


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """A tiny config from a full one (``config.json``'s keys with every default filled in); pure and deterministic.

    Sizes shrink, lists with one entry per layer are resized so that each kind of layer still occurs, token ids move
    into the tiny vocabulary, and everything else stays as it is.
    """
    tiny = {key: copy.deepcopy(value) for key, value in config.items() if key not in LEFT_OUT}
    tiny["dtype"] = "float32"
    for key, value in config.items():
        if isinstance(value, Mapping) and _first(value, LAYER_COUNTS):
            tiny[key] = shrink(value)  # a part with layers of its own (text_config)

    sizes: dict[int, int] = {}  # real size -> tiny size, for keys of unknown name
    for key, value in config.items():
        if key in SIZES and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            tiny[key] = min(value, SIZES[key])
            if value >= SMALLEST_TELLING_SIZE:
                sizes.setdefault(value, tiny[key])

    hidden, heads, kv_heads = _first(config, HIDDEN_SIZES), _first(config, HEAD_COUNTS), _first(config, KV_HEAD_COUNTS)
    head_dim = _first(config, HEAD_DIMS)
    scale = 1.0
    tiny_already = hidden is not None and heads is not None and hidden <= SIZES["hidden_size"] and heads <= 2 * HEADS
    if heads is not None and not tiny_already:  # a tiny layout of heads stays as it is
        tiny_heads = min(heads, HEADS)
        tiny_hidden = _first(tiny, HIDDEN_SIZES) or HEADS * HEAD_DIM
        tiny_head_dim = tiny_hidden // tiny_heads
        if head_dim is not None and hidden is not None and head_dim * heads != hidden:
            tiny_head_dim *= 2  # keeps the width of all heads different from the hidden size
        _replace(tiny, HEAD_COUNTS, tiny_heads)
        _replace(tiny, HEAD_DIMS, tiny_head_dim)
        if kv_heads is not None:
            few = tiny_heads if kv_heads == heads else 1 if kv_heads == 1 else max(1, tiny_heads // 2)
            _replace(tiny, KV_HEAD_COUNTS, few)
        real_head_dim = head_dim or ((hidden or 0) // heads)
        scale = tiny_head_dim / real_head_dim if real_head_dim else 1.0
        if isinstance(config.get("rotary_dim"), int):
            tiny["rotary_dim"] = max(2, int(config["rotary_dim"] * scale) // 2 * 2)

    for key, value in config.items():
        if key.endswith(EPSILONS) and isinstance(value, float):
            tiny[key] = min(value * EPSILON_FACTOR, LARGEST_EPSILON)

    ratio = _context_ratio(config)
    extended = POSITIONS if ratio is None else int(ORIGINAL_POSITIONS * min(ratio, LARGEST_CONTEXT_RATIO))
    _replace(tiny, CONTEXTS, max(extended, POSITIONS))
    _replace(tiny, ["original_max_position_embeddings"], ORIGINAL_POSITIONS)
    for key in ROPE_TABLES:
        if isinstance(config.get(key), Mapping):
            tiny[key] = _shrink_rope(config[key], scale)

    _shrink_layers(config, tiny)
    vocabulary = _first(tiny, ["vocab_size"]) or VOCABULARY
    for key, value in config.items():
        if key.endswith(("_token_id", "_token_ids")):
            tiny[key] = _into_vocabulary(value, vocabulary)
        elif isinstance(value, int) and not isinstance(value, bool) and key not in SIZES and tiny.get(key) == value:
            tiny[key] = sizes.get(value, value)
    return tiny


def _replace(tiny: dict[str, Any], names: Sequence[str], size: int) -> None:
    for name in names:
        if isinstance(tiny.get(name), int) and not isinstance(tiny[name], bool):
            tiny[name] = size


def _shrink_layers(config: Mapping[str, Any], tiny: dict[str, Any]) -> None:
    count = _first(config, LAYER_COUNTS)
    if count is None:
        return
    per_layer = {key: value for key, value in config.items() if isinstance(value, list) and len(value) == count}
    chosen = choose_layers(list(per_layer.values()), count)
    for key, value in per_layer.items():
        tiny[key] = [value[index] for index in chosen]
    for key, value in config.items():
        if isinstance(value, list) and key.endswith("_layers") and key not in per_layer:
            # a list of layer numbers: those that are still there, by their new numbers
            tiny[key] = [new for new, old in enumerate(chosen) if old in value]
        elif key.endswith("_layers") and isinstance(value, int) and not isinstance(value, bool):
            if value >= count and key not in LAYER_COUNTS:
                tiny[key] = len(chosen)  # "from this layer on", never reached
            elif value > 0 and key not in LAYER_COUNTS:
                tiny[key] = sum(old < value for old in chosen)
    _replace(tiny, LAYER_COUNTS, len(chosen))


def _into_vocabulary(value: Any, vocabulary: int) -> Any:
    if isinstance(value, list):
        return [_into_vocabulary(item, vocabulary) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and value >= vocabulary:
        return value % vocabulary
    return value
