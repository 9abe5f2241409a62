"""Loads pattern files. A pattern is one file; adding one adds a pattern.

A pattern file is part of the compiler (or of the user's own ``--patterns`` folder), so it
is imported; it may import ``fusec``, ``numpy`` and the standard library. Its reference
functions are ordinary PyTorch over the names ``torch``, ``F`` and ``ACT2FN``, which exist
only where they are traced or tested.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path

from fusec.diagnostics import Diagnostic, Place, UsageProblem, refuse
from fusec.match.unit import Pattern
from fusec.read.types import Source

ROLES = ("norm", "position", "attention", "linear", "mlp", "moe", "recurrent", "residual", "model", "head")
"""Pattern folders in the order in which they are applied: later ones build on earlier."""


def shipped_folder() -> Path:
    """The patterns that come with fusec: inside the package, or beside it in a checkout."""
    inside = Path(__file__).resolve().parent.parent / "_patterns"
    return inside if inside.is_dir() else Path(__file__).resolve().parent.parent.parent / "patterns"


def load_patterns(extra: Path | None = None) -> tuple[Pattern, ...]:
    """All patterns in the order of application; those of ``extra`` come first in their role.

    Raises FusecError FUS406 for a file that is not a pattern, UsageProblem for no such folder."""
    folders = [shipped_folder()]
    if extra is not None:
        if not extra.is_dir():
            raise UsageProblem(
                Diagnostic(
                    "FUS001", f"There is no folder {extra}.", None, "--patterns takes a folder of pattern files."
                )
            )
        folders.insert(0, extra)
    found: list[Pattern] = []
    for role in ROLES:
        for folder in folders:
            for path in sorted((folder / role).glob("*.py")):
                if not path.name.startswith("_"):
                    found.append(load_pattern(path, role))
    return tuple(found)


def load_pattern(path: Path, role: str) -> Pattern:
    """Load one pattern file."""
    text = path.read_text(encoding="utf-8")
    name = f"{role}/{path.stem}"
    module_name = f"fusec_patterns.{role}.{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
        find = module.find
        if not (module.__doc__ or "").strip():
            raise ValueError("it has no docstring")
        summary = str(module.__doc__).strip().splitlines()[0]
    except Exception as error:
        inside = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = getattr(error, "lineno", None) or (inside[-1] if inside else None) or 1
        raise refuse(
            "FUS406",
            f"{path.name} is not a pattern: {error}.",
            Place(f"patterns/{role}/{path.name}", line),
            "A pattern file has a docstring and a function find(ctx, matches, pattern).",
        ) from None
    source = Source(f"patterns/{role}/{path.name}", module_name, text, "pattern")
    return Pattern(name, summary, find, source, hashlib.sha256(text.encode()).hexdigest(), getattr(module, "ORDER", 0))
