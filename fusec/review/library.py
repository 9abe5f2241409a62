"""The pattern library as people read it: the list by role, and one pattern in full."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from fusec.diagnostics import Diagnostic, UsageProblem
from fusec.match.patterns import load_patterns, shipped_folder
from fusec.match.unit import Pattern
from fusec.review.text import styled

# Which families each shipped pattern serves; written by docs/generate.py from conversions of their default configs.
FAMILIES = "families.json"


def list_lines(extra: Path | None = None) -> Iterator[Text]:
    """The patterns by role, in the order in which they are applied: what each does, and the families it serves."""
    patterns = load_patterns(extra)
    families = served_families()
    width = max((len(pattern.name) for pattern in patterns), default=0)
    role = ""
    for pattern in patterns:
        if pattern.name.partition("/")[0] != role:
            first, role = not role, pattern.name.partition("/")[0]
            yield styled("" if first else "\n", (role, "bold"))
        yield styled("  ", (pattern.name.ljust(width), "cyan"), f"  {pattern.summary}")
        if pattern.name in families:
            yield styled((f"  {' ' * width}  serves {', '.join(families[pattern.name])}", "dim"))


def show_lines(name: str, extra: Path | None = None) -> Iterator[Text]:
    """One pattern: its documentation with the examples, then the file itself."""
    pattern = _find(name, load_patterns(extra))
    documentation = ast.get_docstring(ast.parse(pattern.source.text)) or ""
    yield styled((pattern.name, "bold cyan"), f"  {pattern.source.name}  sha256 {pattern.sha256[:12]}")
    families = served_families().get(pattern.name)
    if families:
        yield styled((f"serves {', '.join(families)}", "dim"))
    for line in ("", *documentation.splitlines(), ""):
        yield styled(line)
    yield styled((f"--- {pattern.source.name}", "bold"))
    for line in _body(pattern.source.text):
        yield styled(line)


def served_families() -> Mapping[str, list[str]]:
    """Pattern name -> model types of the families whose conversion uses it; empty where the list is absent."""
    path = shipped_folder() / FAMILIES
    if not path.is_file():
        return {}
    served: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return served


def _find(name: str, patterns: tuple[Pattern, ...]) -> Pattern:
    named = [pattern for pattern in patterns if name in (pattern.name, pattern.name.rpartition("/")[2])]
    if len(named) == 1:
        return named[0]
    close = [p.name for p in named] or difflib.get_close_matches(name, [p.name for p in patterns], cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else "`fusec patterns list` names them."
    raise UsageProblem(Diagnostic("FUS001", f"There is no one pattern named {name!r}.", hint=hint))


def _body(text: str) -> list[str]:
    """The lines of a pattern file after its docstring."""
    body = ast.parse(text).body
    last = body[0].end_lineno if body and ast.get_docstring(ast.parse(text)) else None
    return "\n".join(text.splitlines()[last or 0 :]).strip("\n").splitlines()


@dataclass(frozen=True)
class PatternTest:
    """The printed outcome of ``fusec patterns test``."""

    lines: tuple[Text, ...]
    passed: bool


def try_patterns(extra: Path | None = None) -> PatternTest:
    """Check each pattern's reference against its engine layer."""
    from fusec.verify.patterns import BARS, check_patterns

    checks = check_patterns(load_patterns(extra))
    width = max((len(check.name) for check in checks), default=0)
    marks = {"passed": ("  ok  ", "green"), "failed": ("  FAIL", "bold red"), "untested": ("  --  ", "dim")}
    lines = []
    for check in checks:
        numbers = "  ".join(
            f"{dtype} {value:.1e} (at most {BARS[dtype]:.1e})" for dtype, value in check.differences.items()
        )
        note = "no layer of its own: seen in the engine by fusec verify" if check.status == "untested" else check.detail
        lines.append(styled(marks[check.status], f"  {check.name.ljust(width)}  {numbers}{note}"))
    failed = sum(check.status == "failed" for check in checks)
    tested = sum(check.status != "untested" for check in checks)
    lines.append(styled(f"\n{tested} references run against their engine layers, {failed} failed."))
    return PatternTest(tuple(lines), not failed)
