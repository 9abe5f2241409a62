"""What is installed, as far as conversion, verification and serving need it, and what the engine lacks."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

from fusec.diagnostics import Diagnostic
from fusec.target import ENGINE_RANGE
from fusec.target.engine import Engine, check_companions, check_installed, find_engine

PACKAGES = ("torch", "transformers", "libcst", "huggingface_hub", "safetensors")


@dataclass(frozen=True)
class DoctorReport:
    """``versions`` maps a package to its version, ``None`` where it is not installed; ``python`` is among them.

    ``exit_status`` follows the command line: 3 where the engine is not there at all, 1 where
    it lacks something that ports use, 0 otherwise (warnings included).
    """

    versions: tuple[tuple[str, str | None], ...]
    engine: Engine | None
    problems: tuple[Diagnostic, ...]

    @property
    def exit_status(self) -> int:
        if self.engine is None:
            return 3
        return 1 if any(problem.severity == "error" for problem in self.problems) else 0


def doctor() -> DoctorReport:
    """Examine this environment; nothing of what is examined is imported."""
    engine = find_engine()
    problems = [*check_installed(), *check_companions()]
    if engine is None:
        problems.insert(0, Diagnostic("FUS004", "vLLM is not installed.", hint="Install fusec[vllm] or fusec[cpu]."))
    elif not engine.tested:
        message = f"vLLM {engine.version} is installed; ports are made and tested for {ENGINE_RANGE}."
        problems.append(Diagnostic("FUS801", message, severity="warning"))
    versions = (("python", platform.python_version()), *((name, _version(name)) for name in PACKAGES))
    return DoctorReport(versions, engine, tuple(problems))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
