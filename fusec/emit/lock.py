"""``fusec.lock``: what a package was made from, by what, and the digest of every file that was written.

JSON with sorted keys, in ASCII, without times or machines' paths: the same conversion
gives the same bytes. ``LOCK_VERSION`` changes when a field changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fusec.diagnostics import Diagnostic, UsageProblem
from fusec.plan.types import FoldedCheck, ParallelPlan, Placement
from fusec.rewrite.types import Change

LOCK_VERSION = 1
LOCK_NAME = "fusec.lock"


@dataclass(frozen=True)
class SourceRecord:
    """A file that was read: as :class:`~fusec.read.types.Source`, and ``file``, where the package keeps a copy."""

    name: str
    module: str
    origin: str
    sha256: str
    file: str


@dataclass(frozen=True)
class Lock:
    """The content of ``fusec.lock``.

    ``config`` is ``config.json`` as read (without ``_name_or_path``, which may be a machine's
    path); ``modeling_file`` is the port's path in the package; ``engine`` the range of vLLM
    versions that it was made for; ``patterns`` maps the name of each pattern used to its
    sha256; ``files`` maps every other file of the package to its sha256.
    """

    fusec: str
    transformers: str
    engine: str
    package: str
    architecture: str
    model_type: str
    model: str
    revision: str | None
    remote_code: bool
    config: Mapping[str, Any]
    modeling_file: str
    modeling: SourceRecord
    configuration: SourceRecord
    patterns: Mapping[str, str]
    checks: tuple[FoldedCheck, ...]
    plan: ParallelPlan
    changes: tuple[Change, ...]
    files: Mapping[str, str]

    def to_bytes(self) -> bytes:
        fields = {"lock_version": LOCK_VERSION, **asdict(self)}
        return (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode("ascii")


def read_lock(folder: Path) -> Lock:
    """The lock of the package in ``folder``; a :class:`UsageProblem` (FUS001) where there is none that can be read."""
    path = folder / LOCK_NAME
    try:
        fields = json.loads(path.read_bytes())
        if fields.pop("lock_version") != LOCK_VERSION:
            raise ValueError("it was written by another version of fusec")
        return Lock(
            **fields
            | {
                "modeling": SourceRecord(**fields["modeling"]),
                "configuration": SourceRecord(**fields["configuration"]),
                "checks": tuple(FoldedCheck(**check) for check in fields["checks"]),
                "plan": _plan(fields["plan"]),
                "changes": tuple(_change(change) for change in fields["changes"]),
            }
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise UsageProblem(
            Diagnostic(
                "FUS001",
                f"{path} could not be read: {why}.",
                hint="Name a folder that `fusec convert` wrote.",
            )
        ) from error


def _plan(fields: dict[str, Any]) -> ParallelPlan:
    placements = tuple(Placement(**each | {"parts": tuple(each["parts"])}) for each in fields["placements"])
    lists = {name: tuple(fields[name]) for name in ("tp_sizes", "tp_limits")}
    return ParallelPlan(**fields | lists | {"placements": placements})


def _change(fields: dict[str, Any]) -> Change:
    lines = {name: fields[name] and tuple(fields[name]) for name in ("source_lines", "port_lines")}
    return Change(**fields | lines)
