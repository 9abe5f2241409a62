"""Trace cases: ``tests/cases/trace/NAME.py`` is a source, ``NAME.txt`` the graph that it has, or the refusal.

A source has a docstring, a class ``Model``, and, where it reads a config, the line ``# config: {...}`` (JSON).
``python -m tests.graph.cases`` rewrites every ``.txt``; read the difference before you keep it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fusec.configure.types import Config
from fusec.diagnostics import FusecError
from fusec.graph.tracer import Graph, trace
from fusec.graph.values import ClassValue, External, Instance, Node, Sym, Tensor
from fusec.read.types import Source

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "trace"


class NoLibrary:
    """No module but the case itself can be found."""

    version = ""

    def find(self, module: str) -> Source | None:
        return None


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def source_of(name: str) -> Source:
    return Source(f"{name}.py", f"cases.{name}", (FOLDER / f"{name}.py").read_text(encoding="utf-8"), "case")


def values_of(source: Source) -> dict[str, Any]:
    """The case's config as JSON has it."""
    stated = re.search(r"^# config: (\{.*\})$", source.text, re.MULTILINE)
    values: dict[str, Any] = json.loads(stated[1]) if stated else {}
    return values


def graph_of(source: Source) -> Graph:
    return trace(source, "Model", Config("CaseConfig", "case", values_of(source), {}), NoLibrary())


def printed(source: Source) -> str:
    """What the ``.txt`` of a case holds."""
    try:
        graph = graph_of(source)
    except FusecError as error:
        return "\n".join(f"{d.code} at {_where(d.place)}: {d.message}" for d in error.diagnostics) + "\n"
    used = _used(graph.logits)
    lines = [_line(node) for node in graph.nodes if node.id in used]
    lines.append(f"return {_text(graph.logits)}")
    lines += [
        f"branch {g.span.line}:{g.span.col + 1} {'layered ' if g.layered else ''}{g.expr}: {g.outcome}"
        for g in graph.guards
    ]
    return "\n".join(lines) + "\n"


def _where(place: Any) -> str:
    return f"{place.line}:{place.column}" if place is not None else "no place"


def _used(logits: Tensor) -> set[int]:
    seen: set[int] = set()
    stack = [logits.node]
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen.add(node.id)
            stack += [t.node for t in node.tensors()]
    return seen


def _line(node: Node) -> str:
    """``%3 mul(%1, other=config.n): model[batch, seq]``"""
    shapes = " ".join(f"{out.dtype}[{', '.join(map(str, out.shape))}]" for out in node.outputs)
    if node.op in ("input", "parameter"):
        owner = node.args.get("owner")
        path = f"{owner.path}." if isinstance(owner, Instance) and owner.path else ""
        return f"%{node.id} {node.op} {path}{node.args.get('name', '')}: {shapes}"
    parts = [
        _text(value) if isinstance(value, Tensor) else f"{key}={_text(value)}"
        for key, value in node.args.items()
        if key != "module" and value is not None
    ]
    return f"%{node.id} {node.op}({', '.join(parts)}): {shapes}"


def _text(value: Any) -> str:
    match value:
        case Tensor():
            return f"%{value.node.id}" + (f".{value.index}" if len(value.node.outputs) > 1 else "")
        case Sym():
            return f"{value.expr} ({value.value!r})"
        case External():
            return value.path.rpartition(".")[2]
        case slice():
            parts = ["" if part is None else _text(part) for part in (value.start, value.stop, value.step)]
            return ":".join(parts if parts[2] else parts[:2])
        case list() | tuple():
            return f"[{', '.join(map(_text, value))}]"
        case Instance() | ClassValue():
            return repr(value)
    return "..." if value is ... else repr(value)


if __name__ == "__main__":
    for case in names():
        (FOLDER / f"{case}.txt").write_text(printed(source_of(case)), encoding="utf-8")
