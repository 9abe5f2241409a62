"""Questions that patterns ask of a graph: what is only layout, which rows a head has, what a value depends on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusec
from fusec.configure import resolve_config
from fusec.graph.tracer import trace
from fusec.match.context import Context
from fusec.match.patterns import load_patterns
from fusec.match.run import match
from fusec.match.sites import Site, rows, sites
from fusec.match.unit import Matches
from fusec.read import read_checkpoint

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tinymodel"
LAYERS, HEADS, KV_HEADS, HEAD_DIM = 4, 4, 2, 32


def matched(folder: Path) -> tuple[Context, Matches]:
    checkpoint = read_checkpoint(str(folder))
    graph = trace(checkpoint.modeling, checkpoint.architecture, resolve_config(checkpoint), checkpoint.library)
    context = Context(graph, checkpoint.library)
    return context, match(context, load_patterns())


@pytest.fixture(scope="module")
def example() -> tuple[Context, list[Site]]:
    context, matches = matched(EXAMPLE)
    return context, sites(context, matches)


def test_each_operand_of_attention_is_followed_to_its_projection(example: tuple[Context, list[Site]]) -> None:
    context, found = example
    assert len(found) == LAYERS
    for site in found:
        assert [o.projection.op for o in (site.query, site.key, site.value)] == ["linear"] * 3
        assert len({id(o.projection.args["module"]) for o in (site.query, site.key, site.value)}) == 3
        assert [o.norm is not None for o in (site.query, site.key, site.value)] == [True, True, False]
        assert [o.rotation is not None for o in (site.query, site.key, site.value)] == [True, True, False]
        assert context.caller(site.frame) is not None


@pytest.mark.parametrize(("name", "heads"), [("query", HEADS), ("key", KV_HEADS), ("value", KV_HEADS)])
def test_the_rows_of_a_projection_are_whole_heads_in_order(
    name: str, heads: int, example: tuple[Context, list[Site]]
) -> None:
    context, found = example
    index = rows(context, getattr(found[0], name))
    assert index.shape == (heads, HEAD_DIM)
    np.testing.assert_array_equal(index, np.arange(heads * HEAD_DIM).reshape(heads, HEAD_DIM))


def test_what_a_value_depends_on(example: tuple[Context, list[Site]]) -> None:
    context, found = example
    rotation = found[0].query.rotation
    assert rotation is not None
    assert all(context.from_positions(table) and not context.from_tokens(table) for table in rotation.tables)
    assert context.from_tokens(rotation.input)
    assert not context.from_positions(rotation.input)
    assert context.from_positions(rotation.output)


# The same model with its rows or tokens elsewhere: each is refused, none converted as if it were in order.
REORDERED = {
    "heads after elements": (
        "values = self.v_proj(hidden_states).view(batch, length, -1, self.head_dim)",
        "values = self.v_proj(hidden_states).view(batch, length, self.head_dim, -1).transpose(2, 3)",
    ),
    "heads backwards": (
        "values = values.transpose(1, 2)",
        "values = torch.cat((values[:, :, 1:], values[:, :, :1]), dim=2).transpose(1, 2)",
    ),
    "elements swapped": (
        "values = values.transpose(1, 2)",
        "values = torch.cat((values[..., 16:], values[..., :16]), dim=-1).transpose(1, 2)",
    ),
    "one head for all": (
        "values = values.transpose(1, 2)",
        "values = values[:, :, :1].repeat(1, 1, 2, 1).transpose(1, 2)",
    ),
    "heads of the output swapped": (
        "return self.o_proj(output.reshape(batch, length, -1)), weights",
        "return self.o_proj(output.transpose(2, 3).reshape(batch, length, -1)), weights",
    ),
    "tokens of the output swapped": (
        "return self.o_proj(output.reshape(batch, length, -1)), weights",
        "return self.o_proj(torch.cat((output[:, 1:], output[:, :1]), 1).reshape(batch, length, -1)), weights",
    ),
    "batch and tokens swapped": (
        "values = self.v_proj(hidden_states).view(batch, length, -1, self.head_dim)",
        "values = self.v_proj(hidden_states).view(length, batch, -1, self.head_dim).transpose(0, 1)",
    ),
}


@pytest.mark.parametrize("name", REORDERED)
def test_a_reordered_layout_is_refused(name: str, tmp_path: Path) -> None:
    old, new = REORDERED[name]
    for path in EXAMPLE.glob("*.*"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    assert new in (tmp_path / "modeling_tinymodel.py").read_text(encoding="utf-8")
    with pytest.raises(fusec.FusecError) as refusal:
        fusec.convert(str(tmp_path), dry_run=True)
    (diagnostic,) = refusal.value.diagnostics
    assert diagnostic.code.startswith("FUS4")
    assert diagnostic.place is not None
