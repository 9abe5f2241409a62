"""The engine that ports are made for: the only place that names its symbols.

A conversion needs the constants here; the examination of an installed engine
(:mod:`fusec.target.engine`, :mod:`fusec.target.examine`) is loaded at its first use.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusec.target.engine import Engine, check_companions, check_installed, find_engine
    from fusec.target.examine import DoctorReport, doctor

# The versions of vLLM whose interface the symbol table is tested against.
ENGINE_RANGE = ">=0.32,<0.34"
# The file that every emitted package carries as its `_registry.py`.
REGISTRY_RUNTIME = Path(__file__).parent / "runtime" / "registry.py"

# What the modeling file of every package imports from beside it.
MODEL_RUNTIME = tuple(Path(__file__).parent / "runtime" / name for name in ("loading.py", "parallel.py", "rotary.py"))

__all__ = [
    "ENGINE_RANGE",
    "MODEL_RUNTIME",
    "REGISTRY_RUNTIME",
    "DoctorReport",
    "Engine",
    "check_companions",
    "check_installed",
    "doctor",
    "find_engine",
]

_LAZY = {
    "DoctorReport": "examine",
    "Engine": "engine",
    "check_companions": "engine",
    "check_installed": "engine",
    "doctor": "examine",
    "find_engine": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fusec.target' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"fusec.target.{_LAZY[name]}"), name)
