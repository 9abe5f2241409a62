"""The wheel holds what a conversion needs: code, patterns, templates; and it works away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel."""
    made = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", made, ROOT]
    subprocess.run(command, check=True)
    (file,) = made.glob("fusec-*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(made / "unpacked")
    return made / "unpacked"


def test_every_file_of_the_package_and_every_pattern_is_in_it(wheel: Path) -> None:
    for folder, inside in (("fusec", "fusec"), ("patterns", "fusec/_patterns")):
        wanted = {
            str(path.relative_to(ROOT / folder))
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert wanted
        there = {str(path.relative_to(wheel / inside)) for path in (wheel / inside).rglob("*") if path.is_file()}
        assert wanted <= there, wanted - there


def test_a_conversion_with_nothing_but_the_wheel(wheel: Path, tmp_path: Path) -> None:
    script = (
        "import fusec, fusec.match.patterns as patterns\n"
        f"assert fusec.__file__.startswith({str(wheel)!r}), fusec.__file__\n"
        f"assert str(patterns.shipped_folder()).startswith({str(wheel)!r})\n"
        f"print(fusec.convert({str(ROOT / 'examples' / 'tinymodel')!r}, out='out').package)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path, env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (tmp_path / "out" / done.stdout.strip() / "__init__.py").is_file()
