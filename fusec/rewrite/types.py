"""What the rewrite stage hands on: the port's text and the record of every change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fusec.plan.types import FoldedCheck

ChangeKind = Literal["rewritten", "kept", "dropped", "added"]


@dataclass(frozen=True)
class Change:
    """One entry of the report: what became of a region of the source.

    ``cls`` is the source class (or function) it lies in; line ranges are 1-based and
    inclusive, ``None`` where one side has nothing; ``pattern`` is the name of the pattern
    that asked for it (``attention/qkv``), ``None`` for kept and plainly dropped code;
    ``what`` is a short sentence for people.
    """

    cls: str
    kind: ChangeKind
    what: str
    pattern: str | None = None
    source_lines: tuple[int, int] | None = None
    port_lines: tuple[int, int] | None = None


@dataclass(frozen=True)
class Port:
    """A finished port, not yet written to disk.

    ``modeling`` is the text of ``modeling_<x>.py`` (formatted, with the source's licence
    header); ``architecture`` the class in it that serves checkpoints of that name;
    ``patterns`` maps the name of each pattern used to the sha256 of its file.
    """

    architecture: str
    model_type: str
    modeling: str
    changes: tuple[Change, ...]
    checks: tuple[FoldedCheck, ...]
    patterns: tuple[tuple[str, str], ...]
