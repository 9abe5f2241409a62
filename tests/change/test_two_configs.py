"""One port for every config that it accepts: two configs of one source give one text, or a check parts them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fusec
from fusec.diagnostics import FusecError
from fusec.emit.checks import checks_module

from .edits import Edit, read_edits, write_fixture

CASES = read_edits("two_configs")


def convert(folder: Path, edit: Edit) -> fusec.Conversion | None:
    try:
        return fusec.convert(str(write_fixture(folder, [edit])), dry_run=True)
    except FusecError:
        return None


def accepts(port: fusec.Conversion, config: Any) -> bool:
    """Whether the port's own checks, as they are written into its package, let a config through."""
    assert port.port is not None
    names: dict[str, Any] = {}
    exec(checks_module(port.checkpoint.model_type, port.port.checks), names)
    return names["fits"](SimpleNamespace(**{**config.values, "model_type": port.checkpoint.model_type})) is None


@pytest.mark.parametrize("name", CASES)
def test_two_configs(name: str, tmp_path: Path) -> None:
    edit = CASES[name]
    assert edit.other is not None
    first = convert(tmp_path / "first", edit)
    second = convert(tmp_path / "second", replace(edit, config={**edit.config, **edit.other}))
    if first is None or second is None:
        # what a config cannot have by itself no other config's port may give it
        alone = first or second
        assert alone is not None or name not in ("as_it_is", "rope_types")
        if alone is not None:
            lacking = edit.config if alone is second else {**edit.config, **edit.other}
            folder = write_fixture(tmp_path / "lacking", [replace(edit, config=lacking)])
            config = fusec.convert(str(folder), stop_after="configure").config
            assert not accepts(alone, config)
        return
    assert first.port is not None
    assert second.port is not None
    assert accepts(first, first.config)
    assert accepts(second, second.config)
    if accepts(first, second.config) or accepts(second, first.config):
        assert first.port.modeling == second.port.modeling
    else:
        assert first.port.modeling != second.port.modeling or first.port.checks != second.port.checks
