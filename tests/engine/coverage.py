"""Tiny configurations of the dense families that cover, pair by pair, what their configs allow.

Every value of an axis below meets every value of every other axis in some case, where one family allows both.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, count
from typing import Any

WINDOW = 8
LAYERS = 4
HIDDEN = 128
MAX_POSITIONS = 128

Config = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A config, and how to serve it so that the engine and transformers compute the same thing.

    `max_model_len` is in tokens. It is below the config's own length where transformers changes the rotary table with
    the length of the sequence. `prompt_lengths` are longer than any window, and on one side of such a length.
    """

    name: str
    model_type: str
    config: Config
    levels: dict[str, str] = field(repr=False)
    max_model_len: int = MAX_POSITIONS
    prompt_lengths: tuple[int, ...] = (40, 23)


ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}

# Axis -> level -> the config keys that make it. A key that is not there takes the class's default.
AXES: dict[str, dict[str, Config]] = {
    "heads": {
        "grouped": {"num_key_value_heads": 2},
        "one_kv": {"num_key_value_heads": 1},
        "all": {"num_key_value_heads": None},
    },
    "head_dim": {
        "absent": {},  # hidden size / heads, or a number of the class's own
        "null": {"head_dim": None},
        "stated": {"head_dim": 64},  # not hidden size / heads
        "indivisible": {"num_attention_heads": 6, "head_dim": 32},
    },
    "attention_bias": {"absent": {}, "true": {"attention_bias": True}, "false": {"attention_bias": False}},
    "out_bias": {"true": {"attention_out_bias": True}, "false": {"attention_out_bias": False}},
    "mlp_bias": {"true": {"mlp_bias": True}, "false": {"mlp_bias": False}},
    "window": {
        "none": {"sliding_window": None},
        "off": {"use_sliding_window": False, "sliding_window": WINDOW, "max_window_layers": 1},
        "full": {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": ["full_attention"] * LAYERS},
        "mixed": {
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2),
        },
        "sliding": {
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention"] * LAYERS,
        },
        "derived": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
        "everywhere": {"sliding_window": WINDOW},  # the family has no layer types
    },
    "no_rope": {
        "absent": {},  # every fourth layer
        "interval": {"no_rope_layer_interval": 2},
        "listed": {"no_rope_layers": [1, 1, 0, 1]},
        "never": {"no_rope_layers": [1] * LAYERS},
    },
    "tied": {"true": {"tie_word_embeddings": True}, "false": {"tie_word_embeddings": False}},
    "rope": {"default": {}, "linear": {}, "dynamic": {}, "yarn": {}, "llama3": {}, "longrope": {}, "old": {}},
}

# What each family allows: all levels of an axis, or the named ones; an axis that is not there means nothing to it.
HEAD_DIMS = ("absent", "stated", "indivisible")
WINDOWS = ("off", "full", "mixed", "sliding", "derived")
FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {
    "llama": {"head_dim": ("absent", "null", "stated"), "attention_bias": (), "mlp_bias": ()},
    "mistral": {"head_dim": (*HEAD_DIMS, "null"), "window": ("none", "everywhere")},
    "qwen2": {"head_dim": HEAD_DIMS, "window": WINDOWS},
    "qwen3": {"head_dim": HEAD_DIMS, "window": WINDOWS, "attention_bias": ()},
    "seed_oss": {"head_dim": (*HEAD_DIMS, "null"), "attention_bias": (), "out_bias": (), "mlp_bias": ()},
    "smollm3": {"head_dim": HEAD_DIMS, "window": WINDOWS, "attention_bias": (), "mlp_bias": (), "no_rope": ()},
}
for _allowed in FAMILIES.values():
    _allowed.update(heads=(), tied=(), rope=())

# The rotary parameters of one rope type, taken in turn by the cases that have it.
_YARN: Config = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
_BANDS: Config = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
_LONG: Config = {"rope_type": "longrope", "rope_theta": 10000.0}
ROPES: dict[str, list[Config]] = {
    "default": [
        {},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        {"rope_parameters": {"rope_theta": 10000}},
        {"rope_parameters": None},
    ],
    "linear": [
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.5}},
    ],
    "dynamic": [
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0}},
    ],
    "yarn": [
        {"rope_parameters": {**_YARN}},
        {"rope_parameters": {**_YARN, "attention_factor": 1.0, "factor": 64.0}},
        {"rope_parameters": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
        {"rope_parameters": {**_YARN, "mscale": 0.7, "mscale_all_dim": 1.3}},
        {"rope_parameters": {**_YARN, "mscale": 0.7}},
        {"rope_parameters": {**_YARN, "beta_fast": 8, "beta_slow": 2, "truncate": False}},
        {"rope_parameters": {**_YARN, "factor": 2.0}},  # the table has to go past factor * original
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}},
        {"rope_parameters": {**_YARN, "attention_factor": 0.5}},
    ],
    "llama3": [
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, **_BANDS}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 3, **_BANDS}},
    ],
    # short_factor and long_factor are filled in: they have one number per pair of a head's elements.
    "longrope": [
        {"rope_parameters": {**_LONG, "original_max_position_embeddings": n, **more}}
        for more in ({}, {"factor": 8.0}, {"attention_factor": 1.3}, {"attention_factor": 1.0}, {"factor": 1.0})
        for n in (16, 64)
    ],
    "old": [
        {"rope_theta": 20000.0},
        {"rope_theta": 20000.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
        {"rope_theta": 20000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, **_BANDS}},
        {"rope_theta": 20000.0, "rope_scaling": None},
        {"rope_theta": 20000, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    ],
}


def levels_of(model_type: str) -> dict[str, tuple[str, ...]]:
    """The axes that `model_type` has, each with the levels it allows."""
    return {axis: levels or tuple(AXES[axis]) for axis, levels in sorted(FAMILIES[model_type].items())}


def valid_pairs() -> set[tuple[tuple[str, str], tuple[str, str]]]:
    """Every two (axis, level) of different axes, in sorted order, that some family allows; family is an axis too."""
    pairs = set()
    for model_type in FAMILIES:
        axes = {**levels_of(model_type), "family": (model_type,)}
        for one, other in combinations(sorted(axes), 2):
            pairs |= {((one, a), (other, b)) for a in axes[one] for b in axes[other]}
    return pairs


def pairs_of(levels: dict[str, str]) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    return set(combinations(sorted(levels.items()), 2))


def choose_levels() -> Iterator[dict[str, str]]:
    """Few choices of a level per axis that have all valid pairs among them.

    Greedy: a choice starts from a pair that none had, and each further axis takes the level that adds most new pairs.
    """
    open_pairs = valid_pairs()
    while open_pairs:
        candidates = []
        for model_type in FAMILIES:
            axes = levels_of(model_type)
            start = next((p for p in sorted(open_pairs) if all(_allows(model_type, axes, part) for part in p)), None)
            if start is None:
                continue
            levels = dict(start) | {"family": model_type}
            for axis in sorted(axes, key=lambda name: (-len(axes[name]), name)):
                if axis not in levels:
                    levels[axis] = max(axes[axis], key=lambda lv: len(pairs_of(levels | {axis: lv}) & open_pairs))
            candidates.append(levels)
        best = max(candidates, key=lambda levels: len(pairs_of(levels) & open_pairs))
        open_pairs -= pairs_of(best)
        yield best


def _allows(model_type: str, axes: dict[str, tuple[str, ...]], part: tuple[str, str]) -> bool:
    axis, level = part
    return level == model_type if axis == "family" else level in axes.get(axis, ())


def cases() -> list[Case]:
    """The cases, always the same ones in the same order."""
    turns = {rope: count() for rope in ROPES}
    return [_case(levels, next(turns[levels["rope"]])) for levels in choose_levels()]


def _case(levels: dict[str, str], turn: int) -> Case:
    model_type = levels["family"]
    config: Config = {
        "architectures": [ARCHITECTURES[model_type]],
        "model_type": model_type,
        "vocab_size": 160,
        "hidden_size": HIDDEN,
        "intermediate_size": 192,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "max_position_embeddings": MAX_POSITIONS,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "dtype": "float32",
    }
    for axis, level in sorted(levels.items()):
        if axis != "family":
            config.update(copy.deepcopy(AXES[axis][level]))
    # "null" means as many as query heads, where the class takes it.
    if levels["heads"] == "all" and (turn % 2 or model_type == "mistral"):
        config["num_key_value_heads"] = config["num_attention_heads"]
    variants = ROPES[levels["rope"]]
    config.update(copy.deepcopy(variants[turn % len(variants)]))
    limits: dict[str, Any] = {}
    if levels["rope"] == "longrope":
        rope = config["rope_parameters"]
        pairs = head_dim(config) // 2
        rope["short_factor"] = [1.0 + 0.05 * i for i in range(pairs)]
        rope["long_factor"] = [1.0 + 0.5 * i for i in range(pairs)]
        if rope["original_max_position_embeddings"] > 40:
            limits["max_model_len"] = rope["original_max_position_embeddings"]
    shown = [f"{axis}_{level}" for axis, level in sorted(levels.items()) if axis not in ("family", "rope")]
    name = "-".join([model_type, f"{levels['rope']}{turn % len(variants)}", *shown])
    return Case(name, model_type, config, levels, **limits)


def head_dim(config: Config) -> int:
    """Elements per head, by the rules of the config's class."""
    own_default = {"qwen3": 128, "seed_oss": 128}
    stated = config.get("head_dim", own_default.get(config["model_type"]))
    return int(stated or config["hidden_size"] // config["num_attention_heads"])
