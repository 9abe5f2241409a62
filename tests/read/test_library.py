"""Modules are found as files, by their dotted name and nothing else."""

from __future__ import annotations

import sys

import pytest

from fusec.read import installed_library, resolve_import


@pytest.mark.parametrize(
    ("module", "level", "current", "is_package", "expected"),
    [
        ("torch.nn", 0, "transformers.models.x.modeling_x", False, "torch.nn"),
        ("configuration_x", 1, "transformers.models.x.modeling_x", False, "transformers.models.x.configuration_x"),
        (
            "llama.modeling_llama",
            2,
            "transformers.models.x.modeling_x",
            False,
            "transformers.models.llama.modeling_llama",
        ),
        ("utils", 3, "transformers.models.x.modeling_x", False, "transformers.utils"),
        ("", 1, "transformers.models.x.modeling_x", False, "transformers.models.x"),
        ("modeling_x", 1, "transformers.models.x", True, "transformers.models.x.modeling_x"),
        ("", 1, "transformers.models.x", True, "transformers.models.x"),
        ("utils", 2, "transformers.models", True, "transformers.utils"),
        ("far", 9, "checkpoint.modeling_x", False, "far"),
    ],
)
def test_resolve_import(module: str, level: int, current: str, is_package: bool, expected: str) -> None:
    assert resolve_import(module, level, current, is_package) == expected


def test_find() -> None:
    library = installed_library()
    module = library.find("transformers.modeling_rope_utils")
    assert module is not None
    assert module.name == "transformers/modeling_rope_utils.py"
    package = library.find("transformers.utils")
    assert package is not None
    assert package.name == "transformers/utils/__init__.py"
    assert library.find("transformers.modeling_rope_utils") is module


@pytest.mark.parametrize(
    "module",
    ["", ".", "torch", "transformers.no_such_module", "transformers..utils", "transformers./etc/passwd", "..x"],
)
def test_what_is_not_found(module: str) -> None:
    assert installed_library().find(module) is None


def test_that_finding_imports_nothing() -> None:
    before = set(sys.modules)
    installed_library().find("transformers.models.qwen3.modeling_qwen3")
    assert not {m for m in set(sys.modules) - before if m.partition(".")[0] in ("transformers", "torch")}
