"""The report of a conversion: per class what was rewritten, kept and dropped, and the parallel plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fusec.plan.types import ParallelPlan, Placement
from fusec.review.problems import diagnostic_json
from fusec.review.text import styled
from fusec.rewrite.types import Change

if TYPE_CHECKING:
    from fusec.pipeline import Conversion

_STYLES = {"rewritten": "green", "added": "green", "kept": "", "dropped": "yellow"}


def conversion_lines(conversion: Conversion) -> Iterator[Text]:
    """The report, line by line."""
    checkpoint = conversion.checkpoint
    yield styled((checkpoint.architecture, "bold"), "  ", (checkpoint.modeling.name, "dim"))
    if conversion.port is not None:
        for name, changes in by_class(conversion.port.changes).items():
            yield styled("\n", (name, "bold"))
            yield from _aligned([(change.kind, change.pattern or "", _what(change)) for change in changes])
        if conversion.port.checks:
            yield styled(
                "\n", ("Decided at conversion", "bold"), "  (other configs of this architecture are not served)"
            )
            for check in conversion.port.checks:
                yield styled(f"  {check.expression} is {check.value!r}: {check.reason}")
    if conversion.plan is not None:
        yield from plan_lines(conversion.plan)


def by_class(changes: Sequence[Change]) -> Mapping[str, tuple[Change, ...]]:
    """The changes of each class, in the order in which the classes first occur."""
    classes: dict[str, tuple[Change, ...]] = {}
    for change in changes:
        classes[change.cls] = (*classes.get(change.cls, ()), change)
    return classes


def plan_lines(plan: ParallelPlan) -> Iterator[Text]:
    """The parallel plan: sizes that can work, why others cannot, and where each weight lies."""
    yield styled("\n", ("Parallel plan", "bold"))
    yield styled(f"  tensor-parallel sizes  {', '.join(map(str, plan.tp_sizes)) or 'none'}")
    for limit in plan.tp_limits:
        yield styled((f"    {limit}", "dim"))
    yield styled(f"  pipeline stages        up to {plan.pp_max}")
    yield from _aligned([(p.module, p.sharding, _placement(p)) for p in plan.placements])


def conversion_json(conversion: Conversion) -> dict[str, Any]:
    """The report as plain data, for ``--json``; the keys are part of the command's interface."""
    port, plan = conversion.port, conversion.plan
    return {
        "ok": True,
        "model": conversion.checkpoint.model,
        "architecture": conversion.checkpoint.architecture,
        "model_type": conversion.checkpoint.model_type,
        "source": {
            "name": conversion.checkpoint.modeling.name,
            "origin": conversion.checkpoint.modeling.origin,
            "sha256": conversion.checkpoint.modeling.sha256,
        },
        "out": None if conversion.out is None else str(conversion.out),
        "package": conversion.package,
        "files": list(conversion.files),
        "changes": [] if port is None else [_change_json(change) for change in port.changes],
        "patterns": {} if port is None else dict(port.patterns),
        "checks": []
        if port is None
        else [{"expression": c.expression, "value": c.value, "reason": c.reason} for c in port.checks],
        "plan": None
        if plan is None
        else {
            "placements": [
                {
                    "module": p.module,
                    "sharding": p.sharding,
                    "axis": p.axis,
                    "parts": list(p.parts),
                    "reason": p.reason,
                }
                for p in plan.placements
            ],
            "tp_sizes": list(plan.tp_sizes),
            "tp_limits": list(plan.tp_limits),
            "pp_max": plan.pp_max,
        },
        "stage": conversion.stage_dump,
        "diagnostics": [diagnostic_json(note) for note in conversion.notes],
        "timings": {stage: round(seconds, 6) for stage, seconds in conversion.timings},
    }


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "class": change.cls,
        "kind": change.kind,
        "pattern": change.pattern,
        "what": change.what,
        "source_lines": change.source_lines,
        "port_lines": change.port_lines,
    }


def _what(change: Change) -> str:
    if change.source_lines is None:
        return change.what
    first, last = change.source_lines
    where = f"line {first}" if first == last else f"lines {first}-{last}"
    return f"{change.what} ({where})"


def _placement(placement: Placement) -> str:
    axis = f"over {placement.axis}" if placement.axis else ""
    own = placement.module.rpartition(".")[2]
    fused = f"<- {', '.join(placement.parts)}" if placement.parts and placement.parts != (own,) else ""
    return "  ".join(filter(None, (axis, fused, placement.reason)))


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[Text]:
    """Rows of three columns, the first two padded; the first coloured if it is a kind of change."""
    first = max((len(row[0]) for row in rows), default=0)
    second = max((len(row[1]) for row in rows), default=0)
    for head, middle, tail in rows:
        style = _STYLES.get(head, "")
        line = styled("  ", (head.ljust(first), style), f"  {middle.ljust(second)}  " if second else "  ", tail)
        line.rstrip()
        yield line
