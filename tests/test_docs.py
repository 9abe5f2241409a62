"""The generated pages are current: the README's example is what the commands print."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_diagnostics(generate: ModuleType) -> None:
    assert (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8") == generate.diagnostics_page(), "make docs"


def test_the_page_of_patterns(generate: ModuleType) -> None:
    assert (ROOT / "docs" / "patterns.md").read_text(encoding="utf-8") == generate.patterns_page(), "make docs"


def test_the_families_that_each_pattern_serves(generate: ModuleType) -> None:
    assert (ROOT / "patterns" / "families.json").read_text(encoding="utf-8") == generate.families_table(), "make docs"


def test_the_example_of_the_readme(generate: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = dict(generate.readme_blocks(readme))
    assert "checks" in shown.pop("verify")
    assert set(shown) == {"convert", "port", "stat"}
    printed = generate.example_blocks()
    for name, body in shown.items():
        assert body == printed[name], f"the block {name!r} is not current: make docs"


def test_the_commands_of_the_readme_are_the_commands_that_exist() -> None:
    from fusec import cli

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in ("convert", "diff", "verify", "patterns", "doctor"):
        assert f"| `fusec {command}" in readme
        assert cli.run([command, "--help"]) == 0
