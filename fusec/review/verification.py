"""The table of a verification: each check with its largest difference, its bar, and where the difference is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fusec.review.text import styled

if TYPE_CHECKING:
    from fusec.verify.harness.checks import Outcome, Row

REASON_LINES = 6


def verification_lines(outcome: Outcome) -> Iterator[Text]:
    """The table, then the verdict."""
    yield styled(("Verification", "bold"), f"  of {outcome.port}, in the engine, against the original")
    heads = ("check", "largest", "bar", "where")
    cells = [(row.name, _number(row.largest), _number(row.bar), _where(row)) for row in outcome.rows]
    widths = [max(len(line[column]) for line in (heads, *cells)) for column in range(3)]
    yield styled("\n", (_columns("      ", heads, widths), "dim"))
    for row, line in zip(outcome.rows, cells, strict=True):
        mark = ("  ok  ", "green") if row.passed else ("  FAIL", "bold red")
        yield styled(mark, _columns("", line, widths))
        if not row.passed:
            yield from _reason(row)
    failed = sum(not row.passed for row in outcome.rows)
    yield styled("")
    if outcome.passed:
        yield styled(("The port computes what the original computes.", "bold green"), f"  {len(outcome.rows)} checks")
        own = f"The original differs from itself (eager against sdpa attention) by {outcome.own_difference:.1e}."
        yield styled((outcome.own_note or own, "dim"))
    else:
        yield styled((f"{failed} of {len(outcome.rows)} checks failed.", "bold red"))


def verification_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain data, for ``--json``."""
    return {
        "ok": outcome.passed,
        "port": outcome.port,
        "own_difference": outcome.own_difference,
        "own_note": outcome.own_note,
        "logit_std": outcome.logit_std,
        "checks": [
            {
                "name": row.name,
                "passed": row.passed,
                "measure": row.measure,
                "largest": row.largest,
                "bar": row.bar,
                "where": row.where,
                "detail": row.detail,
                "code": row.code,
                "seconds": round(row.seconds, 3),
            }
            for row in outcome.rows
        ],
        "seconds": {name: round(seconds, 3) for name, seconds in outcome.seconds.items()},
    }


def _reason(row: Row) -> Iterator[Text]:
    """Why a check failed; of a log, its end (``--json`` has all of it)."""
    lines = [line for line in row.detail.splitlines() if line.strip()][-REASON_LINES:]
    for number, line in enumerate(lines):
        yield styled((f"        {row.code}: " if row.code and not number else "        ", "red"), line)


def _columns(start: str, cells: tuple[str, str, str, str], widths: list[int]) -> str:
    name, largest, bar, where = cells
    return f"{start}  {name.ljust(widths[0])}  {largest.rjust(widths[1])}  {bar.rjust(widths[2])}  {where}".rstrip()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value else "0"


def _where(row: Row) -> str:
    return "  ".join(filter(None, (row.measure, row.where)))
