"""Source text for values: the names of fused layers, and constructor arguments from what the source wrote."""

from __future__ import annotations

import pytest

from fusec.graph.axes import ONE, Size, atom, constant
from fusec.graph.values import External, Instance, Sym
from fusec.match.text import fused_name, size_text, value_text

HEADS, HEAD_DIM = atom("config.num_attention_heads", 4), atom("config.head_dim", 8)


@pytest.mark.parametrize(
    ("attrs", "name"),
    [
        (("q_proj", "k_proj", "v_proj"), "qkv_proj"),
        (("gate_proj", "up_proj"), "gate_up_proj"),
        (("q", "k", "v"), "qkv"),
        (("w1", "w3"), "w1_w3"),
        (("query_layer", "key_layer", "value_layer"), "query_key_value_layer"),
        (("wq", "wk_proj"), "wq_wk_proj"),
    ],
)
def test_the_name_of_a_fused_layer(attrs: tuple[str, ...], name: str) -> None:
    assert fused_name(attrs) == name


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (HEADS * HEAD_DIM, "config.head_dim * config.num_attention_heads"),
        (constant(3) * HEADS, "3 * config.num_attention_heads"),
        (HEADS.divide(constant(2)), "(config.num_attention_heads) // 2"),
        (constant(7), "7"),
        (ONE, "1"),
        (atom("config.hidden_size // config.num_heads", 8), "(config.hidden_size // config.num_heads)"),
        (atom("config.sizes[layer_idx]", 8), "config.sizes[layer_idx]"),
    ],
)
def test_a_size_in_terms_of_the_config(size: Size, text: str) -> None:
    assert size_text(Instance(External("torch.nn.Module")), size) == text


def test_a_size_that_the_module_holds_is_its_attribute() -> None:
    owner = Instance(External("torch.nn.Module"))
    owner.attrs["width"] = Sym(8, "config.head_dim", HEAD_DIM)
    assert size_text(owner, HEAD_DIM) == "self.width"
    # num_heads counts this rank's heads in a port, so it does not stand for the model's
    owner.attrs["num_heads"] = Sym(4, "config.num_attention_heads", HEADS)
    assert size_text(owner, HEADS) == "config.num_attention_heads"
    # another symbol of the same value is another size
    assert size_text(owner, atom("config.other", 8)) == "config.other"


@pytest.mark.parametrize(
    ("value", "text"),
    [(Sym(1e-6, "config.rms_norm_eps"), "config.rms_norm_eps"), (1e-06, "1e-06"), ("silu", "'silu'"), (None, "None")],
)
def test_the_text_of_a_value(value: object, text: str) -> None:
    assert value_text(value) == text
