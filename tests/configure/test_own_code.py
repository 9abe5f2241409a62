"""Configuration classes that ship with a checkpoint: interpreted, never imported, as AutoConfig would make them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusec.configure import Config, resolve_config
from fusec.diagnostics import FusecError
from fusec.read import read_checkpoint

MODELING = "class TinyForCausalLM:\n    pass\n"
OLD_STYLE = """
import math
from transformers.configuration_utils import PretrainedConfig
from transformers.utils import logging

try:
    import apex
    FUSED = True
except ImportError:
    FUSED = False

logger = logging.get_logger(__name__)


class TinyConfig(PretrainedConfig):
    model_type = "tiny"
    keys_to_ignore_at_inference = ["past_key_values"]
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "n_layers"}

    def __init__(
        self,
        d_model=64,
        n_layers=2,
        heads=4,
        window=None,
        rope_theta=10000.0,
        rope_scaling=None,
        pad_token_id=None,
        tie_word_embeddings=False,
        **kwargs,
    ):
        self.d_model = d_model
        self.n_layers = n_layers
        self.heads = heads
        self.window = window if window is not None and window > 0 else None
        self.rope_theta = rope_theta
        self.rope_scaling = rope_scaling
        self._check()
        self.kinds = ["window" if i % 2 else "full" for i in range(self.num_hidden_layers)]
        self.fused = FUSED
        super().__init__(pad_token_id=pad_token_id, tie_word_embeddings=tie_word_embeddings, **kwargs)

    @property
    def head_size(self):
        return self.d_model // self.heads

    @property
    def broken(self):
        return self.there_is_no_such_attribute

    def _check(self):
        if self.rope_scaling is None:
            return
        if not isinstance(self.rope_scaling, dict) or "factor" not in self.rope_scaling:
            raise ValueError(f"`rope_scaling` must have a factor, got {self.rope_scaling}")
        logger.warning_once("scaled by %s", math.sqrt(4))
"""
NEW_STYLE = """
from dataclasses import field
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from .tables import WIDTHS


@strict
class TinyConfig(PreTrainedConfig):
    model_type = "tiny"
    default_theta = 5000.0

    d_model: int = 64
    heads: int = 4
    widths: list[int] = field(default_factory=lambda: list(WIDTHS))
    rope_parameters: dict | None = None
    max_position_embeddings: int = 128

    def __post_init__(self, **kwargs):
        self.double = self.d_model * 2
        super().__post_init__(**kwargs)

    def validate_heads(self):
        if self.d_model % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.d_model}")
"""
NOT_STRICT = """
from transformers import PreTrainedConfig


class Base(PreTrainedConfig):
    depth: int = 3
    width = 7


class TinyConfig(Base):
    model_type = "tiny"
    width: int = 9
    depth = 4
"""
DERIVED = """
from transformers import LlamaConfig
from transformers.models.qwen3 import Qwen3Config
from transformers.models.mistral.configuration_mistral import MistralConfig


class TinyConfig(LlamaConfig):
    model_type = "tiny"
    sub_configs = {"first": Qwen3Config, "second": MistralConfig}

    def __init__(self, first=None, second=None, gate=True, **kwargs):
        self.first = Qwen3Config(**(first or {}))
        self.second = MistralConfig() if second is None else MistralConfig(**second)
        self.gate = gate
        super().__init__(**kwargs)
        self.total = self.hidden_size + self.first.hidden_size
"""
AUTO_MAP = {"AutoConfig": "configuration_tiny.TinyConfig", "AutoModelForCausalLM": "modeling_tiny.TinyForCausalLM"}
KEYS: dict[str, tuple[str, dict[str, Any]]] = {
    "old": (OLD_STYLE, {}),
    "old-values": (OLD_STYLE, {"d_model": 32, "window": 0, "num_labels": 3, "extra": [1], "torch_dtype": "float16"}),
    "old-mapped": (OLD_STYLE, {"hidden_size": 16, "num_hidden_layers": 3}),
    "old-rope": (OLD_STYLE, {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    "old-rope-wrong": (OLD_STYLE, {"rope_scaling": {"type": "linear"}}),
    "new": (NEW_STYLE, {}),
    "new-rope": (NEW_STYLE, {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "rope_theta": 3.0}),
    "new-wrong": (NEW_STYLE, {"d_model": "wide"}),
    "new-validator": (NEW_STYLE, {"d_model": 30}),
    "derived": (DERIVED, {"hidden_size": 96, "num_attention_heads": 3, "first": {"rope_theta": 5.0}}),
    "derived-wrong": (DERIVED, {"first": {"hidden_size": None}}),
    "not-strict": (NOT_STRICT, {"depth": "any", "width": None}),
    "not-strict-defaults": (NOT_STRICT, {}),
}
FILES = {"modeling_tiny.py": MODELING, "tables.py": "WIDTHS = (1, 2, 3)\n"}


def _config(keys: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": "tiny", "architectures": ["TinyForCausalLM"], "auto_map": AUTO_MAP, **keys}


def _write(folder: Path, configuration: str, keys: dict[str, Any]) -> str:
    for name, text in {**FILES, "configuration_tiny.py": configuration}.items():
        (folder / name).write_text(text)
    (folder / "config.json").write_text(json.dumps(_config(keys)))
    return str(folder)


@pytest.fixture(scope="module")
def references(auto_config: Callable[[list[dict[str, Any]]], list[Config | str]]) -> dict[str, Config | str]:
    asked = [
        {**_config(keys), "__files__": {**FILES, "configuration_tiny.py": source}} for source, keys in KEYS.values()
    ]
    return dict(zip(KEYS, auto_config(asked), strict=True))


@pytest.mark.parametrize("name", KEYS)
def test_class_of_a_checkpoint(
    name: str,
    tmp_path: Path,
    references: dict[str, Config | str],
    differences: Callable[[Config, Config], list[str]],
) -> None:
    checkpoint = read_checkpoint(_write(tmp_path, *KEYS[name]))
    assert checkpoint.remote_code
    reference = references[name]
    if isinstance(reference, str):
        with pytest.raises(FusecError) as caught:
            resolve_config(checkpoint)
        assert caught.value.diagnostics[0].code == "FUS202", reference
    else:
        found = [d for d in differences(reference, resolve_config(checkpoint)) if not d.startswith("config.auto_map")]
        assert found == []


def test_that_nothing_of_it_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    touch = f"open({str(marker)!r}, 'w').close()"
    hostile = f"import os\n{touch}\n" + NEW_STYLE.replace(
        "    d_model: int = 64", f"    {touch}\n    d_model: int = 64"
    )
    hostile = hostile.replace("        self.double = self.d_model * 2", "        self.double = 128")
    config = resolve_config(read_checkpoint(_write(tmp_path, hostile, {})))
    assert config["double"] == 128
    assert not marker.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "__import__('os').system('touch {m}')",
        "open('{m}', 'w')",
        "eval('1')",
        "exec('x = 1')",
        "import os; os.mkdir('{m}')",
    ],
)
def test_calls_that_would_do_something_are_refused(statement: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    source = NEW_STYLE.replace("        self.double = self.d_model * 2", f"        {statement.format(m=marker)}")
    checkpoint = read_checkpoint(_write(tmp_path, source, {}))
    with pytest.raises(FusecError) as caught:
        resolve_config(checkpoint)
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == "FUS201"
    assert diagnostic.place is not None
    assert diagnostic.place.path == "configuration_tiny.py"
    assert not marker.exists()


def test_beyond_the_interpreter_is_refused_not_imported(tmp_path: Path) -> None:
    source = NEW_STYLE.replace(
        "        self.double = self.d_model * 2", "        self.double = unknown_library.f(self)"
    )
    with pytest.raises(FusecError) as caught:
        resolve_config(read_checkpoint(_write(tmp_path, "import unknown_library\n" + source, {})))
    assert caught.value.diagnostics[0].code == "FUS201"


def test_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(FusecError) as caught:
        resolve_config(read_checkpoint(_write(tmp_path, "class TinyConfig:\n    model_type = 'tiny'\n", {})))
    assert caught.value.diagnostics[0].code == "FUS201"
