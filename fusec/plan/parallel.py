"""Which tensor- and pipeline-parallel sizes can work, and what each layer does under them."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.match.unit import Layout
from fusec.plan.types import ParallelPlan, Placement

LARGEST = 64
"""The largest tensor-parallel size that is looked at."""


def parallel_plan(layouts: Iterable[tuple[str, Layout]], layers: int) -> ParallelPlan:
    """Derive the plan from the layouts of all layers; ``layers`` is the number of decoder layers."""
    placements: list[Placement] = []
    rules: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path, layout in layouts:
        name = f"{path}.{layout.attr}" if path else layout.attr
        placements.append(Placement(name, layout.sharding, layout.axis, layout.parts, layout.reason))
        if layout.sharding == "qkv":
            heads, kv = layout.extent
            rules[f"{heads} query heads"] = ("divide", (heads,))
            rules[f"{kv} key/value heads"] = ("kv", (kv,))
        elif layout.sharding in ("column", "row") and layout.extent:
            rules[f"{layout.axis} size {layout.extent[0]}"] = ("divide", layout.extent)
    sizes: list[int] = []
    limits: dict[str, list[int]] = {}
    for tp in range(1, LARGEST + 1):
        broken = [name for name, (kind, extent) in rules.items() if not _works(kind, extent[0], tp)]
        if broken:
            limits.setdefault(broken[0], []).append(tp)
        else:
            sizes.append(tp)
    sentences = tuple(f"{name} cannot be dealt out to {_some(bad)} ranks." for name, bad in limits.items())
    return ParallelPlan(tuple(placements), tuple(sizes), sentences, layers)


def _works(kind: str, extent: int, tp: int) -> bool:
    if kind == "kv":
        return extent % tp == 0 if tp <= extent else tp % extent == 0
    return extent % tp == 0


def _some(sizes: list[int]) -> str:
    shown = ", ".join(map(str, sizes[:4]))
    return f"{shown}, ..." if len(sizes) > 4 else shown
