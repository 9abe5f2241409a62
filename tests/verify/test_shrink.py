"""Shrinking a config: sizes go down, and every choice that decides which code runs stays."""

from typing import Any

import pytest

from fusec.verify.harness.shrink import LARGEST_CONTEXT_RATIO, LAYERS, MOST_LAYERS, choose_layers, shrink

BASE: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "attention_bias": True,
    "eos_token_id": [128001, 2],
    "pad_token_id": None,
}


def test_sizes_shrink_and_choices_stay() -> None:
    tiny = shrink(BASE)
    assert (tiny["hidden_size"], tiny["intermediate_size"], tiny["vocab_size"]) == (128, 256, 384)
    assert (tiny["num_hidden_layers"], tiny["num_attention_heads"], tiny["num_key_value_heads"]) == (LAYERS, 4, 2)
    assert tiny["hidden_act"] == "silu"
    assert tiny["attention_bias"] is True
    assert tiny["pad_token_id"] is None
    assert tiny["eos_token_id"] == [128001 % 384, 2]
    assert tiny["rms_norm_eps"] == pytest.approx(1e-2)  # large enough for another one to show


def test_the_config_given_is_left_alone() -> None:
    config = {**BASE, "rope_parameters": {"rope_type": "default"}, "layer_types": ["full_attention"] * 32}
    before = repr(config)
    shrink(config)["layer_types"].append("x")
    assert repr(config) == before


@pytest.mark.parametrize(("heads", "kv_heads", "expected"), [(32, 32, 4), (32, 1, 1), (32, 8, 2), (32, 16, 2)])
def test_the_kind_of_head_sharing_stays(heads: int, kv_heads: int, expected: int) -> None:
    tiny = shrink({**BASE, "num_attention_heads": heads, "num_key_value_heads": kv_heads})
    assert tiny["num_key_value_heads"] == expected


@pytest.mark.parametrize(("head_dim", "expected"), [(128, 32), (64, 64), (256, 64), (None, None)])
def test_heads_fill_the_hidden_size_or_not_as_before(head_dim: int | None, expected: int | None) -> None:
    assert shrink({**BASE, "head_dim": head_dim})["head_dim"] == expected


def test_each_combination_of_per_layer_values_still_occurs() -> None:
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    rope = [1, 1, 1, 0] * 9
    config = {**BASE, "num_hidden_layers": 36, "layer_types": kinds * 6, "no_rope_layers": rope}
    tiny = shrink(config)
    pairs = list(zip(tiny["layer_types"], tiny["no_rope_layers"], strict=True))
    assert set(pairs) == set(zip(kinds * 6, rope, strict=True))
    assert tiny["num_hidden_layers"] == len(pairs) == 4


def test_layers_are_kept_in_order_and_bounded() -> None:
    assert choose_layers([list(range(100))], 100) == list(range(MOST_LAYERS))
    assert choose_layers([["a", "a"]], 2) == [0, 0, 1, 1]
    assert choose_layers([], 32) == [0, 10, 21, 31]


def test_lists_of_layer_numbers_follow() -> None:
    tiny = shrink({**BASE, "mlp_only_layers": [0, 31], "max_window_layers": 28})
    assert tiny["mlp_only_layers"] == [0, 3]
    assert tiny["max_window_layers"] == 3  # three of the layers kept lie below it
    assert shrink({**BASE, "max_window_layers": 32})["max_window_layers"] == LAYERS


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rope_tables_keep_their_ratios(key: str) -> None:
    table = {
        "rope_type": "longrope",
        "original_max_position_embeddings": 4096,
        "short_factor": [1.0 + i for i in range(64)],
        "long_factor": [2.0 + i for i in range(64)],
    }
    tiny = shrink({**BASE, "max_position_embeddings": 131072, key: table})
    assert tiny[key]["original_max_position_embeddings"] == 64
    assert tiny["max_position_embeddings"] == 64 * 32
    assert len(tiny[key]["short_factor"]) == len(tiny[key]["long_factor"]) == 16
    assert (tiny[key]["short_factor"][0], tiny[key]["short_factor"][-1]) == (1.0, 64.0)
    assert len(table["short_factor"]) == 64


def test_a_table_for_each_kind_of_layer() -> None:
    tables = {
        "full_attention": {"rope_type": "yarn", "original_max_position_embeddings": 8, "mrope_section": [16, 24, 24]}
    }
    tiny = shrink({**BASE, "max_position_embeddings": 8 * 10**6, "rope_parameters": tables})
    assert tiny["max_position_embeddings"] == 64 * LARGEST_CONTEXT_RATIO
    assert tiny["rope_parameters"]["full_attention"]["original_max_position_embeddings"] == 64
    assert sum(tiny["rope_parameters"]["full_attention"]["mrope_section"]) == 16


def test_a_size_of_unknown_name_follows_the_size_it_equals() -> None:
    tiny = shrink({**BASE, "width_of_something": 11008, "number_of_something": 32, "another": 12345})
    assert tiny["width_of_something"] == 256
    assert tiny["number_of_something"] == 32
    assert tiny["another"] == 12345


def test_what_only_a_quantised_or_placed_checkpoint_has_goes() -> None:
    tiny = shrink({**BASE, "quantization_config": {"bits": 4}, "_name_or_path": "x", "torch_dtype": "bfloat16"})
    assert "quantization_config" not in tiny
    assert "_name_or_path" not in tiny
    assert "torch_dtype" not in tiny
    assert tiny["dtype"] == "float32"


def test_a_window_that_is_off_stays_off() -> None:
    assert shrink({**BASE, "sliding_window": None})["sliding_window"] is None
    assert shrink({**BASE, "sliding_window": 4096})["sliding_window"] == 8
