"""fusec: the offline compiler from transformers modeling files to vLLM-native packages.

The commands as functions with typed results: :func:`convert`, :func:`diff`,
:func:`verify_port` and :func:`doctor`. Each is loaded at its first use, so that
``import fusec`` stays cheap and a conversion never loads what only verification needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusec.diagnostics import Diagnostic, EnvironmentProblem, FusecError, Place, UsageProblem

if TYPE_CHECKING:
    from fusec.pipeline import Conversion, convert
    from fusec.review.diff import PortDiff
    from fusec.review.open import diff
    from fusec.target.examine import doctor
    from fusec.verify import verify_port

__version__ = "0.1.0"

__all__ = [
    "Conversion",
    "Diagnostic",
    "EnvironmentProblem",
    "FusecError",
    "Place",
    "PortDiff",
    "UsageProblem",
    "__version__",
    "convert",
    "diff",
    "doctor",
    "verify_port",
]

_LAZY = {
    "Conversion": "fusec.pipeline",
    "PortDiff": "fusec.review.diff",
    "convert": "fusec.pipeline",
    "diff": "fusec.review.open",
    "doctor": "fusec.target.examine",
    "verify_port": "fusec.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fusec' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
