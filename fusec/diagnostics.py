"""What fusec says when it cannot go on, and how loudly.

Every refusal is a :class:`Diagnostic`: a stable code, one sentence, a place in a
source file where there is one, and a hint. A stage that cannot go on raises
:class:`FusecError` with one or more of them; the command line prints them and
exits with the error's status. Nothing else is raised on purpose.

Codes are stable: ``CODES`` is the only table of them, ``docs/diagnostics.md`` is
generated from it, and a code that was once published keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]

CODES: dict[str, str] = {
    # 0xx: the command line and the file system
    "FUS001": "The command was used in a way that it does not support.",
    "FUS002": "The output folder exists already.",
    "FUS003": "The output could not be written.",
    "FUS004": "The environment lacks something that this command needs.",
    "FUS005": "An internal error: fusec met a case that it should have refused by name.",
    # 1xx: reading the checkpoint and the modeling source
    "FUS101": "The model could not be found.",
    "FUS102": "The model's config.json could not be read.",
    "FUS103": "The architecture cannot be converted by this version.",
    "FUS104": "The modeling source could not be found.",
    "FUS105": "The modeling source is not valid Python.",
    "FUS106": "The Hub could not be reached or refused access.",
    "FUS107": "The checkpoint's tensor list could not be read.",
    # 2xx: the configuration as the model class sees it
    "FUS201": "The configuration source uses a construct that fusec does not interpret.",
    "FUS202": "The configuration is not valid for its class.",
    # 3xx: tracing
    "FUS301": "The source uses a Python construct that fusec does not interpret.",
    "FUS302": "A call could not be resolved to anything that fusec knows.",
    "FUS303": "A branch depends on a tensor's value.",
    "FUS304": "A branch depends on a value that fusec does not know.",
    "FUS305": "A dimension could not be resolved.",
    "FUS306": "The configuration has no such attribute.",
    "FUS307": "The source raises an error for this configuration.",
    # 4xx: matching
    "FUS401": "A computation matches no pattern and cannot be kept as it is.",
    "FUS402": "The attention call has a keyword that fusec does not know.",
    "FUS403": "A parameter or buffer belongs to no emitted module.",
    "FUS404": "A pattern matched, but its numerical confirmation failed.",
    "FUS405": "An input of the attention call does not come from a projection.",
    "FUS406": "A pattern file is not valid.",
    # 5xx: planning
    "FUS501": "No tensor-parallel size can work.",
    "FUS502": "Two layers of one class differ in a way that one class cannot express.",
    # 6xx: emitting
    "FUS601": "A name or string from outside is not safe to write into the package.",
    # 7xx: verification and the engine
    "FUS701": "The port does not compute what the original computes.",
    "FUS702": "The engine could not run the port.",
    "FUS703": "The original could not be run as the reference.",
    "FUS704": "The port was not the class that ran.",
    # 8xx: the engine's interface
    "FUS801": "The installed engine lacks a symbol or signature that ports use.",
}


@dataclass(frozen=True, order=True)
class Place:
    """A position in a source file: 1-based line, 1-based column, as editors count."""

    path: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Diagnostic:
    """One thing to say. ``message`` is a sentence; ``hint`` says what the reader can do."""

    code: str
    message: str
    place: Place | None = None
    hint: str | None = None
    severity: Severity = "error"

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code} is not in the table of diagnostic codes")

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{where}{self.severity}[{self.code}]: {self.message}{hint}"


class FusecError(Exception):
    """A refusal. ``exit_status`` follows the command line: 1 diagnostics or a failed
    check, 2 usage, 3 the environment lacks something."""

    exit_status = 1

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))


class UsageProblem(FusecError):
    """The command was called in a way that cannot work (exit status 2)."""

    exit_status = 2


class EnvironmentProblem(FusecError):
    """Something that this command needs is not installed or not reachable (exit status 3)."""

    exit_status = 3


def refuse(code: str, message: str, place: Place | None = None, hint: str | None = None) -> FusecError:
    """Build (not raise) the error of a single diagnostic: ``raise refuse("FUS302", ...)``."""
    return FusecError(Diagnostic(code, message, place, hint))
