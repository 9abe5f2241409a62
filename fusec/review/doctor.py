"""What ``fusec doctor`` prints: what is installed, and whether the engine has what ports use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

import fusec
from fusec.review.problems import diagnostic_json, diagnostic_text
from fusec.review.text import styled
from fusec.target import ENGINE_RANGE
from fusec.target.examine import DoctorReport


def doctor_lines(report: DoctorReport) -> Iterator[Text]:
    """One line per package, then the problems."""
    rows = [*_versions(report), ("vllm", _engine(report))]
    width = max(len(name) for name, _ in rows)
    for name, version in rows:
        mark = ("  ok  ", "green") if version else ("  --  ", "red")
        yield styled(mark, f"{name.ljust(width)}  {version or 'not installed'}")
    yield styled("")
    for problem in report.problems:
        yield diagnostic_text(problem)
    if report.exit_status == 0:
        yield styled(("Ready.", "bold green"), "  The engine has every symbol and signature that ports use.")
    elif report.engine is None:
        yield styled("Models can be converted; to verify and to serve them needs the engine.")


def doctor_json(report: DoctorReport) -> dict[str, Any]:
    """The report as plain data, for ``--json``."""
    engine = report.engine
    return {
        "ok": report.exit_status == 0,
        "versions": dict(_versions(report)),
        "engine": None
        if engine is None
        else {"distribution": engine.distribution, "version": engine.version, "tested": engine.tested},
        "engine_range": ENGINE_RANGE,
        "diagnostics": [diagnostic_json(problem) for problem in report.problems],
    }


def _versions(report: DoctorReport) -> list[tuple[str, str | None]]:
    return [("fusec", fusec.__version__), *report.versions]


def _engine(report: DoctorReport) -> str | None:
    if report.engine is None:
        return None
    name = report.engine.distribution
    return f"{report.engine.version or 'of unknown version'}{f' (as {name})' if name not in (None, 'vllm') else ''}"
