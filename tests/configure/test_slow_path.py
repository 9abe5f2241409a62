"""The slow path: a class of transformers that is beyond the interpreter is imported in another process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusec.configure import Config, resolve, resolve_config
from fusec.diagnostics import FusecError, Place, refuse
from fusec.read import Checkpoint, read_checkpoint


@pytest.fixture
def _beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every configuration class is beyond the interpreter."""

    def give_up(checkpoint: Checkpoint, values: dict[str, Any]) -> Config:
        raise refuse("FUS301", "A generator.", Place("transformers/x.py", 3))

    monkeypatch.setattr(resolve, "_interpret", give_up)


def _folder(path: Path, **keys: Any) -> str:
    text = json.dumps({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **keys})
    (path / "config.json").write_text(text)
    return str(path)


def test_it_gives_what_interpreting_gives(
    tmp_path: Path, differences: Callable[[Config, Config], list[str]], request: pytest.FixtureRequest
) -> None:
    keys = {"rope_scaling": {"type": "yarn", "factor": 2.0}, "torch_dtype": "bfloat16", "extra": {"__float__": "NaN"}}
    checkpoint = read_checkpoint(_folder(tmp_path, **keys))
    interpreted = resolve_config(checkpoint)
    request.getfixturevalue("_beyond")
    imported = resolve_config(checkpoint)
    assert imported.slow_path == "transformers/x.py:3:1: A generator."
    assert interpreted.slow_path is None
    assert differences(imported, interpreted) == []
    assert "transformers" not in sys.modules or "fusec" not in str(sys.modules["transformers"])


@pytest.mark.usefixtures("_beyond")
def test_a_rejected_configuration(tmp_path: Path) -> None:
    with pytest.raises(FusecError) as caught:
        resolve_config(read_checkpoint(_folder(tmp_path, hidden_size="wide")))
    assert caught.value.diagnostics[0].code == "FUS202"


@pytest.mark.usefixtures("_beyond")
def test_the_working_directory_is_not_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "transformers.py").write_text("open('marker', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    assert resolve_config(read_checkpoint(_folder(tmp_path))).slow_path
    assert "marker" not in os.listdir(tmp_path)
