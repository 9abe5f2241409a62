"""A model type as MODEL: its family's default config, and what is no type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fusec.diagnostics import Diagnostic
from fusec.read import read_checkpoint

Refusal = Callable[..., Diagnostic]


def test_default_config() -> None:
    read = read_checkpoint("qwen3")
    assert read.config == {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
    assert (read.folder, read.tensors) == (None, None)


def test_a_folder_of_that_name_without_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of an earlier conversion does not hide the type."""
    (tmp_path / "qwen3").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read_checkpoint("qwen3").folder is None


def test_a_folder_of_that_name_with_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qwen3").mkdir()
    (tmp_path / "qwen3" / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.chdir(tmp_path)
    assert read_checkpoint("qwen3").architecture == "LlamaForCausalLM"


def test_a_type_that_the_causal_table_does_not_list() -> None:
    assert read_checkpoint("emu3_text_model").architecture == "Emu3ForCausalLM"


@pytest.mark.parametrize(
    ("model", "code", "says"),
    [
        ("qwen33", "FUS101", "qwen3"),
        ("", "FUS101", "MODEL is"),
        ("no such thing", "FUS101", "MODEL is"),
        ("./x", "FUS101", "MODEL is"),
        ("../../x", "FUS101", "MODEL is"),
        ("a/b/c", "FUS101", "MODEL is"),
        ("x\0y", "FUS101", "MODEL is"),
        ('"]\nimport os', "FUS101", "MODEL is"),
        ("t5", "FUS103", "decoder-only"),
        ("bart", "FUS103", "decoder-only"),
        ("clip", "FUS103", "decoders"),
    ],
)
def test_refusals(model: str, code: str, says: str, refusal: Refusal) -> None:
    found = refusal(model)
    assert found.code == code
    assert says in (found.hint or "")
