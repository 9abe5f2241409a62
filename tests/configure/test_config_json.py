"""Configurations as people wrote them over the years equal what AutoConfig makes of them, or fail as it fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusec.configure import Config, resolve_config
from fusec.diagnostics import FusecError
from fusec.read import installed_library, read_checkpoint
from fusec.read.tables import auto_tables

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
LONG = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
SLIDING = {
    "full_attention": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_theta": 1e4},
}

ROPE: dict[str, dict[str, Any]] = {
    "absent": {},
    "theta": {"rope_theta": 500000.0},
    "theta-int": {"rope_theta": 500000},
    "null": {"rope_scaling": None, "rope_theta": 1e6},
    "empty": {"rope_scaling": {}, "rope_theta": 1e6},
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "linear-theta": {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 1e6},
    "both-types": {"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 4096},
    "dynamic-alpha": {"rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}},
    "yarn": {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}},
    "yarn-without-original": {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    "yarn-mscale": {"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}},
    "yarn-attention-factor": {"rope_scaling": {"rope_type": "yarn", "factor": 64.0, "attention_factor": 1.0}},
    "yarn-beta": {
        "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "beta_fast": 16, "beta_slow": 2, "truncate": False}
    },
    "yarn-outside": {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 512},
    "llama3": {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 500000.0},
    "llama3-missing": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
    "longrope": {"rope_scaling": {"type": "longrope", **LONG}, "original_max_position_embeddings": 1024},
    "su": {"rope_scaling": {"type": "su", **LONG}, "original_max_position_embeddings": 1024},
    "longrope-inside": {"rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 99, **LONG}},
    "mrope": {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
    "unknown-type": {"rope_scaling": {"type": "vendor-yarn", "factor": 2.0}},
    "new": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 7.0}},
    "new-with-old-type": {"rope_parameters": {"type": "linear", "factor": 3.0}},
    "new-and-theta": {"rope_parameters": {"rope_type": "default"}, "rope_theta": 9.0},
    "new-and-old": {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "partial": {"partial_rotary_factor": 0.5},
    "partial-inside": {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
    "partial-old-names": {"rotary_pct": 0.25, "rotary_emb_base": 20000},
    "per-layer-type": {"rope_parameters": SLIDING},
    "per-layer-type-old": {
        "rope_local_base_freq": 2e4,
        "rope_theta": 5e5,
        "rope_scaling": {"type": "linear", "factor": 8.0},
    },
    "missing-factor": {"rope_scaling": {"type": "linear"}},
    "odd-head": {"head_dim": 7},
}
# Types of each way to declare rope: field, class default, factor, nested, outside length, own conversion.
ROPE_TYPES = (
    "llama mistral qwen2 qwen3 smollm3 seed_oss phi3 gemma3_text gpt_neox stablelm deepseek_v3 cohere2 olmo3 "
    "ministral3 gpt_oss falcon persimmon modernbert-decoder glm4 nemotron granite"
).split()

GENERAL: dict[str, dict[str, Any]] = {
    "torch_dtype": {"torch_dtype": "bfloat16"},
    "dtype": {"dtype": "float16", "torch_dtype": "bfloat16"},
    "labels": {"id2label": {"0": "a", "1": "b", "2": "c"}},
    "num_labels": {"num_labels": 5},
    "extra": {"a_key_of_no_class": {"nested": [1, {"x": None}]}, "another": 1.5},
    "generation": {"temperature": 0.3, "max_length": 7, "top_k": 5, "do_sample": True, "use_cache": False},
    "internal": {"_attn_implementation_internal": "flash", "_commit_hash": "x", "attn_implementation": "sdpa"},
    "head_dim-null": {"head_dim": None, "hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 1},
    "head_dim-stated": {"head_dim": 16, "hidden_size": 40, "num_attention_heads": 4, "num_key_value_heads": 1},
    "kv-null": {"num_key_value_heads": None},
    "window": {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1, "num_hidden_layers": 3},
    "layer_types": {
        "layer_types": ["full_attention", "sliding_attention"],
        "num_hidden_layers": 2,
        "sliding_window": 8,
    },
    "layer_types-old": {"layer_types": ["attention", "attention"], "num_hidden_layers": 2},
    "layer_types-short": {"layer_types": ["full_attention"], "num_hidden_layers": 2},
    "layer_types-unknown": {"layer_types": ["what", "is"], "num_hidden_layers": 2},
    "no-layers": {"num_hidden_layers": 1},
    "not-divisible": {"hidden_size": 50, "num_attention_heads": 7},
    "mapped": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 77, "n_inner": 12},
    "tied": {"tie_word_embeddings": True},
    "bad-pad": {"pad_token_id": -1},
    "infinity": {"an_extra": {"__float__": "Infinity"}, "tag": {"__float__": "no"}},
    "wrong-int": {"hidden_size": "4096"},
    "wrong-bool": {"tie_word_embeddings": "yes"},
    "wrong-float": {"rms_norm_eps": "tiny"},
    "int-for-float": {"rms_norm_eps": 1},
    "bool-for-int": {"num_hidden_layers": True},
    "wrong-list": {"layer_types": "full_attention"},
    "eos-list": {"eos_token_id": [1, 2]},
    "quantization": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
    "transformers_version": {"transformers_version": "4.11.0"},
    "problem": {"problem_type": "single_label_classification", "num_labels": 1},
    "output_attentions": {"output_attentions": True},
    "per_layer": {"per_layer_config": {"1": {"intermediate_size": 96}}, "num_hidden_layers": 3},
    "per_layer-range": {"per_layer_config": {"9": {"intermediate_size": 96}}, "num_hidden_layers": 3},
}
GENERAL_TYPES = (
    "llama mistral qwen3 smollm3 seed_oss gemma2 gpt2 gpt_neox gpt_bigcode mpt jamba gemma3_text opt".split()
)


def _cases() -> dict[str, dict[str, Any]]:
    tables = auto_tables(installed_library())
    cases = {}
    for types, table in ((ROPE_TYPES, ROPE), (GENERAL_TYPES, GENERAL)):
        for model_type in types:
            for name, keys in table.items():
                base = {"model_type": model_type, "architectures": [tables.causal[model_type]]}
                cases[f"{model_type}-{name}"] = base | keys
    return cases


CASES = _cases()


@pytest.fixture(scope="module")
def references(auto_config: Callable[[list[dict[str, Any]]], list[Config | str]]) -> dict[str, Config | str]:
    return dict(zip(CASES, auto_config(list(CASES.values())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_config_json(
    name: str,
    tmp_path: Path,
    references: dict[str, Config | str],
    differences: Callable[[Config, Config], list[str]],
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CASES[name]))
    checkpoint = read_checkpoint(str(tmp_path))
    before = json.dumps(checkpoint.config)
    reference = references[name]
    if isinstance(reference, str):
        with pytest.raises(FusecError) as caught:
            resolve_config(checkpoint)
        assert caught.value.diagnostics[0].code == "FUS202", reference
    else:
        ours = resolve_config(checkpoint)
        assert ours.slow_path is None
        # A config that is loaded as another type keeps the name that AutoConfig's object keeps.
        assert [d for d in differences(reference, ours) if not d.startswith("config.architectures")] == []
    assert json.dumps(checkpoint.config) == before
