"""Diagnostics as people read them (a sentence, the source line, a caret, a hint) and as JSON."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from fusec.diagnostics import Diagnostic, Place
from fusec.review.text import code_lines, printable, styled

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
# A place names a source file; anything much larger is not one.
_LARGEST_SOURCE = 16 * 2**20
# Of a longer line (a config on one line, say), the part around the place is shown.
_WIDEST_LINE = 140


def diagnostic_text(diagnostic: Diagnostic, roots: Sequence[Path] = ()) -> Text:
    """The lines that the terminal shows for one diagnostic.

    ``roots`` are folders in which the place's file may lie besides the current one and
    the installed packages; where it cannot be read, its name and position are still said.
    """
    text = styled((f"{diagnostic.severity}[{diagnostic.code}]", _STYLES[diagnostic.severity]), ": ", diagnostic.message)
    if diagnostic.place is not None:
        text.append_text(styled("\n", ("  --> ", "blue"), str(diagnostic.place)))
        line = source_line(diagnostic.place, roots)
        if line is not None:
            text.append_text(_caret(line, diagnostic.place))
    if diagnostic.hint:
        text.append_text(styled("\n", ("  hint", "bold"), ": ", diagnostic.hint))
    return text


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """One diagnostic as plain data: ``code``, ``severity``, ``message``, ``place`` and ``hint``."""
    place = diagnostic.place
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "place": None if place is None else {"path": place.path, "line": place.line, "column": place.column},
        "hint": diagnostic.hint,
    }


def source_line(place: Place, roots: Sequence[Path] = ()) -> str | None:
    """The line that ``place`` points at, ``None`` where its file is not at hand."""
    for path in _candidates(place.path, roots):
        try:
            if not path.is_file() or path.stat().st_size > _LARGEST_SOURCE:
                continue
            lines = code_lines(path.read_text(encoding="utf-8", errors="replace"))
        except (OSError, ValueError):
            continue
        return lines[place.line - 1] if 0 < place.line <= len(lines) else None
    return None


def _candidates(name: str, roots: Sequence[Path]) -> Iterable[Path]:
    yield Path(name)
    for root in roots:
        yield root / name
    # `package/models/x/y.py` is how a place names a file of an installed package.
    package = Path(name).parts[0] if Path(name).parts else ""
    if package.isidentifier():
        try:
            spec = importlib.util.find_spec(package)  # a top-level name: finds, imports nothing
        except (ImportError, ValueError):
            return
        for location in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(location).parent / name


def _caret(line: str, place: Place) -> Text:
    number = str(place.line)
    margin = " " * len(number)
    line = line.replace("\t", " ")  # one column each, so that the caret stands under its character
    first, at = 0, max(place.column - 1, 0)
    if len(line) > _WIDEST_LINE:
        first = max(0, min(at - _WIDEST_LINE // 2, len(line) - _WIDEST_LINE))
        line = line[first : first + _WIDEST_LINE]
    before = len(printable(line[: at - first]))
    return styled(
        ("\n" + f" {margin} |", "blue"),
        ("\n" + f" {number} | ", "blue"),
        line.rstrip(),
        ("\n" + f" {margin} | ", "blue"),
        (" " * before + "^", "bold red"),
    )
