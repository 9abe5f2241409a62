"""The default configuration of every decoder of transformers equals what AutoConfig makes of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fusec.configure import Config, resolve_config
from fusec.diagnostics import FusecError
from fusec.read import Checkpoint, installed_library, read_checkpoint
from fusec.read.tables import auto_tables


def _decoders() -> list[Checkpoint]:
    """Every model type with a decoder: those of the causal table, and the text types nested in other folders."""
    tables = auto_tables(installed_library())
    checkpoints = []
    for model_type in dict.fromkeys((*tables.causal, *(t for t in tables.config_classes if "text" in t))):
        try:
            checkpoints.append(read_checkpoint(model_type))
        except FusecError as error:
            if error.diagnostics[0].code != "FUS103":
                raise
    return checkpoints


DECODERS = _decoders()


@pytest.fixture(scope="module")
def references(auto_config: Callable[[list[dict[str, Any]]], list[Config | str]]) -> dict[str, Config | str]:
    answers = auto_config([dict(c.config) for c in DECODERS])
    return {c.model: answer for c, answer in zip(DECODERS, answers, strict=True)}


def test_that_all_decoders_are_here() -> None:
    assert len({c.architecture for c in DECODERS}) >= 127


@pytest.mark.parametrize("checkpoint", DECODERS, ids=lambda c: c.model)
def test_default_configuration(
    checkpoint: Checkpoint,
    references: dict[str, Config | str],
    differences: Callable[[Config, Config], list[str]],
) -> None:
    reference = references[checkpoint.model]
    if isinstance(reference, str):
        with pytest.raises(FusecError) as caught:
            resolve_config(checkpoint)
        assert caught.value.diagnostics[0].code == "FUS202"
        return
    ours = resolve_config(checkpoint)
    assert ours.slow_path is None
    assert differences(reference, ours) == []


def test_that_nothing_heavy_is_imported() -> None:
    model_type = DECODERS[0].model
    code = (
        "import sys; from fusec.read import read_checkpoint; from fusec.configure import resolve_config; "
        f"resolve_config(read_checkpoint({model_type!r})); "
        "sys.exit(' '.join({'torch', 'transformers', 'vllm', 'huggingface_hub'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
