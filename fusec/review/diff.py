"""The modeling file beside its port, class by class, each hunk labelled with the patterns that made it.

``compare`` takes texts and the recorded changes, and gives facts; printing them is
:mod:`fusec.review.diff_print`. Hunks come from difflib; their labels are the recorded
changes whose line ranges overlap the lines that the hunk removes or adds. Class by class, a
hunk with several reasons is split where the reason changes.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from fusec.diagnostics import Diagnostic, UsageProblem
from fusec.review.text import code_lines
from fusec.rewrite.types import Change, ChangeKind

# Unchanged lines shown around each hunk, as diff tools do.
CONTEXT = 3
# What stands outside all classes and functions: licence, imports, constants.
MODULE = "<module>"


@dataclass(frozen=True)
class Line:
    """One line of a hunk. ``source`` and ``port`` are its 1-based numbers, ``None`` where a side lacks it."""

    mark: Literal[" ", "-", "+"]
    text: str
    source: int | None
    port: int | None


@dataclass(frozen=True)
class Label:
    """Why a hunk is there: the pattern (``None`` where plain rules did it) and what it did."""

    kind: ChangeKind
    pattern: str | None
    what: str

    def __str__(self) -> str:
        return self.pattern or self.kind


@dataclass(frozen=True)
class Hunk:
    """Neighbouring removed and added lines with their context."""

    lines: tuple[Line, ...]
    labels: tuple[Label, ...]

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns behind this hunk, each once."""
        return tuple(dict.fromkeys(label.pattern for label in self.labels if label.pattern))


@dataclass(frozen=True)
class ClassDiff:
    """The hunks of one class or function; ``only`` says if one side alone has it."""

    name: str
    hunks: tuple[Hunk, ...]
    only: Literal["source", "port"] | None = None

    @property
    def removed(self) -> int:
        return sum(line.mark == "-" for hunk in self.hunks for line in hunk.lines)

    @property
    def added(self) -> int:
        return sum(line.mark == "+" for hunk in self.hunks for line in hunk.lines)


@dataclass(frozen=True)
class PortDiff:
    """A modeling file beside its port. ``unified`` holds the hunks of the two whole files, in file order."""

    source_name: str
    port_name: str
    classes: tuple[ClassDiff, ...]
    unified: tuple[Hunk, ...]


def compare(
    source: str,
    port: str,
    changes: Sequence[Change],
    *,
    source_name: str,
    port_name: str,
    pattern: str | None = None,
    cls: str | None = None,
) -> PortDiff:
    """The differences between the texts ``source`` and ``port``.

    ``pattern`` (a full name, or the part after its folder) and ``cls`` keep only the hunks
    of that pattern or class; a name that occurs nowhere is a :class:`UsageProblem`.
    """
    old, new = code_lines(source), code_lines(port)
    old_parts, new_parts = _segments(source, old), _segments(port, new)
    names = dict.fromkeys([*old_parts, *new_parts])
    classes = tuple(
        ClassDiff(
            name,
            _class_hunks(_hunks(old, old_parts.get(name, ()), new, new_parts.get(name, ()), changes), name, changes),
            only=None if name in old_parts and name in new_parts else "source" if name in old_parts else "port",
        )
        for name in names
    )
    whole = _hunks(old, range(1, len(old) + 1), new, range(1, len(new) + 1), changes)
    found = PortDiff(source_name, port_name, tuple(c for c in classes if c.hunks), whole)
    if cls is not None:
        found = _only_class(found, cls, list(names), set(old_parts.get(cls, ())), set(new_parts.get(cls, ())))
    if pattern is not None:
        found = _only_pattern(found, pattern, changes)
    return found


def _segments(text: str, lines: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Line numbers of each top-level class and function (decorators included), and of all else but blank lines."""
    parts: dict[str, tuple[int, ...]] = {MODULE: ()}
    taken: set[int] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            own = range(first, (node.end_lineno or node.lineno) + 1)
            parts[node.name] = (*parts.get(node.name, ()), *own)
            taken.update(own)
    parts[MODULE] = tuple(number for number, line in enumerate(lines, 1) if number not in taken and line.strip())
    return parts


Opcode = tuple[str, int, int, int, int]


def _hunks(
    old: Sequence[str], old_numbers: Sequence[int], new: Sequence[str], new_numbers: Sequence[int],
    changes: Sequence[Change],
) -> tuple[Hunk, ...]:  # fmt: skip
    """Hunks as diff tools make them: neighbours within twice the context are one."""
    a = [old[number - 1] for number in old_numbers]
    b = [new[number - 1] for number in new_numbers]
    hunks = []
    for group in difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(CONTEXT):
        lines = [line for opcode in group for line in _lines(opcode, a, old_numbers, b, new_numbers)]
        hunks.append(Hunk(tuple(lines), _labels(lines, changes)))
    return tuple(hunks)


def _lines(
    opcode: Opcode, a: Sequence[str], old_numbers: Sequence[int], b: Sequence[str], new_numbers: Sequence[int]
) -> Iterator[Line]:
    tag, a1, a2, b1, b2 = opcode
    if tag == "equal":
        for i, j in zip(range(a1, a2), range(b1, b2), strict=True):
            yield Line(" ", a[i], old_numbers[i], new_numbers[j])
    else:
        for i in range(a1, a2):
            yield Line("-", a[i], old_numbers[i], None)
        for j in range(b1, b2):
            yield Line("+", b[j], None, new_numbers[j])


def _by_reason(hunk: Hunk, changes: Sequence[Change], otherwise: tuple[Label, ...]) -> Iterator[Hunk]:
    """The parts of a hunk that have different reasons, each with its share of the context between them.

    ``otherwise`` are the labels of lines that no record covers."""
    runs: list[tuple[list[Line], tuple[Label, ...]]] = []
    context: list[Line] = []
    for same, group in groupby(hunk.lines, lambda line: line.mark == " "):
        lines = list(group)
        if same:
            context = lines
            continue
        labels = _labels(lines, changes) or otherwise
        if runs and runs[-1][1] == labels:
            runs[-1][0].extend([*context, *lines])
        elif runs:
            middle = (len(context) + 1) // 2
            runs[-1][0].extend(context[:middle])
            runs.append(([*context[middle:], *lines], labels))
        else:
            runs.append(([*context, *lines], labels))
        context = []
    if runs:
        runs[-1][0].extend(context)
    for lines, labels in runs:
        yield Hunk(tuple(lines), labels)


def _class_hunks(hunks: Sequence[Hunk], name: str, changes: Sequence[Change]) -> tuple[Hunk, ...]:
    """The hunks of one class, split by reason; lines that no record covers stand under all patterns of the class."""
    of_class = dict.fromkeys(_label(c) for c in changes if c.cls == name and c.kind in ("rewritten", "added"))
    parts = (part for hunk in hunks for part in _by_reason(hunk, changes, tuple(of_class)))
    return tuple(filter(_says_something, parts))


def _label(change: Change) -> Label:
    return Label(change.kind, change.pattern, change.what)


def _says_something(hunk: Hunk) -> bool:
    """Whether more than blank lines differ; seen class by class, those are layout."""
    return any(line.mark != " " and line.text.strip() for line in hunk.lines)


def _labels(lines: Iterable[Line], changes: Iterable[Change]) -> tuple[Label, ...]:
    removed = [line.source for line in lines if line.mark == "-" and line.source is not None]
    added = [line.port for line in lines if line.mark == "+" and line.port is not None]
    return tuple(
        dict.fromkeys(
            _label(change)
            for change in changes
            if change.kind != "kept"
            and (_overlaps(change.source_lines, removed) or _overlaps(change.port_lines, added))
        )
    )


def _overlaps(span: tuple[int, int] | None, numbers: Iterable[int]) -> bool:
    return span is not None and any(span[0] <= number <= span[1] for number in numbers)


def _only_class(found: PortDiff, cls: str, names: Sequence[str], old: set[int], new: set[int]) -> PortDiff:
    if cls not in names:
        known = ", ".join(name for name in names if name != MODULE)
        raise UsageProblem(
            Diagnostic("FUS001", f"Neither file has a class or function named {cls!r}.", hint=f"There are: {known}.")
        )
    return replace(
        found,
        classes=tuple(c for c in found.classes if c.name == cls),
        unified=tuple(h for h in found.unified if any(line.source in old or line.port in new for line in h.lines)),
    )


def _only_pattern(found: PortDiff, pattern: str, changes: Iterable[Change]) -> PortDiff:
    known = sorted({change.pattern for change in changes if change.pattern})
    wanted = {name for name in known if pattern in (name, name.rpartition("/")[2])}
    if not wanted:
        raise UsageProblem(
            Diagnostic(
                "FUS001",
                f"No change was made by a pattern named {pattern!r}.",
                hint=f"Patterns used: {', '.join(known) or 'none'}.",
            )
        )
    classes = tuple(replace(c, hunks=tuple(h for h in c.hunks if wanted & set(h.patterns))) for c in found.classes)
    return replace(
        found,
        classes=tuple(c for c in classes if c.hunks),
        unified=tuple(h for h in found.unified if wanted & set(h.patterns)),
    )
