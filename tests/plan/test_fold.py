"""The parts of fold-or-keep: which configs are tried for a branch's other way, and what is checked where none works."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fusec
from fusec.configure.types import Config
from fusec.graph.values import Span
from fusec.plan.fold import Branch, candidates, folded, general, outcomes, settled, variants
from fusec.rewrite.types import Port

SPAN = Span("model/modeling_x.py", 12, 4, 13, 0)


def config(**values: Any) -> Config:
    return Config("XConfig", "x", {"num_hidden_layers": 4, **values}, {"layers": "num_hidden_layers"})


def tried(expr: str, outcome: bool, **values: Any) -> list[dict[str, Any]]:
    """The changed keys of each variant."""
    before = config(**values)
    return [
        {k: v for k, v in variant.values.items() if before.values.get(k, ...) != v and k != "num_hidden_layers"}
        for variant in variants(Branch(SPAN, expr), before, outcome)
    ]


@pytest.mark.parametrize(
    ("expr", "outcome", "values", "first"),
    [
        ("config.bias", True, {"bias": True}, {"bias": False}),
        ("config.kind == 'a'", True, {"kind": "a"}, {"kind": None}),
        ("config.kind == 'b'", False, {"kind": "a"}, {"kind": "b"}),
        ("config.window is not None", False, {"window": None}, {"window": 8}),
        ("config.window is not None", True, {"window": 16}, {"window": None}),
        ("config.scale != 1.0", True, {"scale": 2.0}, {"scale": 1.0}),
        ("config.heads == config.kv_heads", False, {"heads": 8, "kv_heads": 2}, {"heads": 2}),
        ("getattr(config, 'cap', None) is not None", False, {}, {"cap": 8}),
        (
            "config.layer_types[layer_idx] == 'sliding'", False,
            {"layer_types": ["full", "full"], "num_hidden_layers": 2}, {"layer_types": ["full", "sliding"]},
        ),
    ],
)  # fmt: skip
def test_the_first_config_of_the_other_way_is_one_key_away(
    expr: str, outcome: bool, values: dict[str, Any], first: dict[str, Any]
) -> None:
    assert tried(expr, outcome, **values)[0] == first


@pytest.mark.parametrize(
    ("expr", "outcome", "values"),
    [
        ("config.bias", True, {"bias": True}),
        ("config.kind == 'b'", False, {"kind": "a"}),
        ("config.window is not None", True, {"window": 16}),
        ("config.heads > 4", True, {"heads": 8}),
    ],
)
def test_every_config_tried_goes_the_other_way(expr: str, outcome: bool, values: dict[str, Any]) -> None:
    found = list(variants(Branch(SPAN, expr), config(**values), outcome))
    assert found
    assert all(set(outcomes(expr, variant)) == {not outcome} for variant in found)


def test_a_key_that_nobody_has_is_not_tried() -> None:
    assert not tried("config.nowhere", False)


def test_a_window_comes_with_the_layers_that_have_one() -> None:
    values = {"layer_types": ["full_attention"] * 2, "num_hidden_layers": 2, "sliding_window": None}
    first = tried("config.layer_types[layer_idx] == 'sliding_attention'", False, **values)[0]
    assert first["sliding_window"] is not None
    assert "sliding_attention" in first["layer_types"]


def test_a_variant_has_few_layers() -> None:
    (variant, *_) = variants(Branch(SPAN, "config.bias"), config(bias=True), True)
    assert variant.values["num_hidden_layers"] == 2


@pytest.mark.parametrize(
    ("expr", "values", "found"),
    [
        ("config.kinds[layer_idx] == 'x'", {"kinds": ["x", "y", "x", "y"]}, {True, False}),
        ("config.kinds[layer_idx] == 'x'", {"kinds": ["y"] * 4}, {False}),
        ("layer_idx % 2 == 0", {}, {True, False}),
        ("layer_idx < config.layers", {}, {True}),
        ("config.rope['rope_type'] == 'default'", {"rope": {"rope_type": "default"}}, {True}),
        ("config.kinds[layer_idx] == 'x'", {"kinds": []}, set()),  # cannot be evaluated
    ],
)
def test_what_a_branch_does_over_the_layers(expr: str, values: dict[str, Any], found: set[bool]) -> None:
    assert set(outcomes(expr, config(**values))) == found


def test_a_constant_index_into_a_list_of_layers_is_the_layers_index() -> None:
    assert general("config.layer_types[3] == 'full'") == "config.layer_types[layer_idx] == 'full'"
    assert general("config.sizes['a'] == 2") == "config.sizes['a'] == 2"


@pytest.mark.parametrize(
    ("expr", "values", "is_settled"),
    [
        ("hasattr(config, 'bias')", {"bias": False}, True),
        ("hasattr(config, 'bias')", {}, False),
        ("config.bias", {"bias": False}, False),
    ],
)
def test_what_the_class_declares_needs_no_check(expr: str, values: dict[str, Any], is_settled: bool) -> None:
    assert settled(Branch(SPAN, expr), config(**values)) is is_settled


@pytest.mark.parametrize(
    ("expr", "outcome", "expression"),
    [
        ("config.bias", True, "bool(config.bias)"),
        ("config.kinds[layer_idx] == 'x'", True,
         "all(config.kinds[layer_idx] == 'x' for layer_idx in range(config.num_hidden_layers))"),
        ("config.kinds[layer_idx] == 'x'", False,
         "any(config.kinds[layer_idx] == 'x' for layer_idx in range(config.num_hidden_layers))"),
    ],
)  # fmt: skip
def test_the_check_of_a_folded_branch(expr: str, outcome: bool, expression: str) -> None:
    check = folded(Branch(SPAN, expr), outcome, "No pattern covers it.")
    assert (check.expression, check.value) == (expression, outcome)
    assert "line 12 of modeling_x.py" in check.reason
    assert "No pattern covers it." in check.reason


@pytest.mark.parametrize(
    ("value", "constants", "first"),
    [(True, (), False), (None, ("x",), 8), (4, (6,), 6), (4, (), 2), (0.5, (), 0.0), ("a", ("a", "b"), "b")],
)
def test_other_values_of_a_key(value: Any, constants: tuple[Any, ...], first: Any) -> None:
    found = list(candidates(value, constants))
    assert found[0] == first
    assert value not in found


def port(folder: Path, *edits: tuple[str, str]) -> Port:
    """The port of our example model with some of its text replaced."""
    example = Path(__file__).resolve().parents[2] / "examples" / "tinymodel"
    for path in example.glob("*.*"):
        text = path.read_text(encoding="utf-8")
        for old, new in edits:
            text = text.replace(old, new)
        (folder / path.name).write_text(text, encoding="utf-8")
    made = fusec.convert(str(folder), dry_run=True).port
    assert made is not None
    return made


def test_a_kept_branch_stands_in_the_port(tmp_path: Path) -> None:
    rule = "        if config.num_hidden_layers > 2:\n            self.scaling = self.scaling * 2\n"
    made = port(tmp_path, ("        self.is_causal = True\n", rule))
    assert rule in made.modeling
    assert not [check for check in made.checks if "num_hidden_layers" in check.expression]


def test_a_folded_branch_is_not_in_the_port_but_checked(tmp_path: Path) -> None:
    made = port(
        tmp_path,
        ("        self.act_fn = ", '        self.odd = config.hidden_act == "relu"\n        self.act_fn = '),
        (
            "        return self.down_proj(",
            "        if self.odd:\n            return torch.cumsum(x, dim=-1)\n        return self.down_proj(",
        ),
    )
    assert "cumsum" not in made.modeling
    (check,) = (check for check in made.checks if "hidden_act" in check.expression)
    assert check.value is False
    assert eval(check.expression, {"config": SimpleNamespace(hidden_act="silu")}) is False
    assert eval(check.expression, {"config": SimpleNamespace(hidden_act="relu")}) is True
