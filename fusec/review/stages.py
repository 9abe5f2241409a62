"""The stages of a conversion in printed form, for ``--stop-after``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fusec.configure.types import Config
from fusec.plan.types import FoldedCheck, ParallelPlan
from fusec.read.types import Checkpoint

if TYPE_CHECKING:
    from fusec.graph.tracer import Graph
    from fusec.rewrite.lower import Lowering


def show_config(checkpoint: Checkpoint, config: Config) -> str:
    """The checkpoint's facts and the resolved config, one attribute a line."""
    lines = [
        f"architecture {checkpoint.architecture}",
        f"source {checkpoint.modeling.name} ({checkpoint.modeling.origin})",
    ]
    lines += [f"config.{name} = {_plain(value)}" for name, value in sorted(config.values.items())]
    return "\n".join(lines)


def show_graph(graph: Graph) -> str:
    """The dataflow graph: one node a line with its shape, dtype and place."""
    lines = []
    for node in graph.nodes:
        out = ", ".join(map(repr, node.outputs))
        inputs = ", ".join(f"%{t.node.id}.{t.index}" for t in node.tensors())
        where = f"  {node.span.file.rpartition('/')[2]}:{node.span.line}" if node.span else ""
        lines.append(f"{out} = {node.op}({inputs}){where}")
    return "\n".join(lines)


def show_matches(lowering: Lowering) -> str:
    """The units that the patterns found, by the module that owns them."""
    lines = []
    for units in lowering.matches.units.values():
        for unit in units:
            lines.append(f"{unit.frame.module!r}: {unit.pattern}: {unit.what}")
    return "\n".join(sorted(lines))


def show_plan(plan: ParallelPlan, checks: tuple[FoldedCheck, ...]) -> str:
    """The placements, the sizes that work, and what was folded."""
    lines = [f"{p.module}: {p.sharding} {p.axis or ''} {', '.join(p.parts)}".rstrip() for p in plan.placements]
    lines.append(f"tensor-parallel sizes: {', '.join(map(str, plan.tp_sizes))}")
    lines += list(plan.tp_limits)
    lines.append(f"pipeline stages: up to {plan.pp_max}")
    lines += [f"folded: {c.expression} is {c.value!r} ({c.reason})" for c in checks]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)
