"""The slow path: a class of transformers that is beyond the interpreter is imported in another process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusec.configure import Config, resolve, resolve_config
from fusec.diagnostics import Diagnostic, FusecError, Place
from fusec.read import Checkpoint, read_checkpoint


@pytest.fixture
def _beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every configuration class is beyond the interpreter."""

    def give_up(checkpoint: Checkpoint, values: dict[str, Any]) -> Config:
        raise resolve._Unsure(Diagnostic("FUS201", "A generator.", Place("transformers/x.py", 3)))

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
    assert not (tmp_path / "marker").exists()


def test_an_error_that_the_class_does_not_raise_itself_is_checked(tmp_path: Path) -> None:
    """A division by zero is no rejection by the class: the class itself is asked, and fails too."""
    with pytest.raises(FusecError) as caught:
        resolve_config(read_checkpoint(_folder(tmp_path, head_dim=None, num_attention_heads=0, layer_types=5)))
    assert caught.value.diagnostics[0].code == "FUS202"
