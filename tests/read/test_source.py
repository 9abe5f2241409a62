"""``--source``: the modeling file from elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fusec.configure import resolve_config
from fusec.diagnostics import Diagnostic, Place
from fusec.read import installed_library, read_checkpoint, resolve_import

Refusal = Callable[..., Diagnostic]
DAY0 = """
from ..llama.modeling_llama import LlamaMLP
from .configuration_day0 import Day0Config


class Day0ForCausalLM:
    pass
"""
DAY0_CONFIG = """
from ...configuration_utils import PreTrainedConfig


class Day0Config(PreTrainedConfig):
    model_type = "day0"
    width: int = 5
"""


def test_a_file_of_a_known_type(tmp_path: Path) -> None:
    """An edited copy of a modeling file: its imports resolve in the installed transformers."""
    original = read_checkpoint("qwen3")
    file = tmp_path / "modeling_qwen3.py"
    file.write_text(original.modeling.text + "# edited\n")
    read = read_checkpoint("qwen3", source=file)
    assert read.modeling.text.endswith("# edited\n")
    assert (read.modeling.name, read.modeling.origin) == ("modeling_qwen3.py", "file")
    assert read.configuration == original.configuration
    assert not read.remote_code
    config = resolve_import("configuration_qwen3", 1, read.modeling.module, False)
    assert read.library.find(config) == original.configuration
    assert resolve_config(read).values == resolve_config(original).values


def test_a_renamed_file_of_a_known_type(tmp_path: Path) -> None:
    file = tmp_path / "my copy.py"
    file.write_text(read_checkpoint("qwen3").modeling.text)
    read = read_checkpoint("qwen3", source=file)
    assert read.modeling.name == "my copy.py"
    assert read.config_class == "Qwen3Config"


def test_the_configuration_beside_it(tmp_path: Path) -> None:
    original = read_checkpoint("qwen3")
    (tmp_path / "modeling_qwen3.py").write_text(original.modeling.text)
    edited = original.configuration.text.replace("hidden_size: int = 4096", "hidden_size: int = 123")
    (tmp_path / "configuration_qwen3.py").write_text(edited)
    read = read_checkpoint("qwen3", source=tmp_path / "modeling_qwen3.py")
    assert (read.configuration.name, read.configuration.origin) == ("configuration_qwen3.py", "file")
    assert resolve_config(read)["hidden_size"] == 123


def test_a_model_that_transformers_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "modeling_day0.py").write_text(DAY0)
    (tmp_path / "configuration_day0.py").write_text(DAY0_CONFIG)
    read = read_checkpoint("day0", source=tmp_path / "modeling_day0.py")
    assert (read.architecture, read.config_class) == ("Day0ForCausalLM", "Day0Config")
    assert resolve_config(read)["width"] == 5
    module = resolve_import("llama.modeling_llama", 2, read.modeling.module, False)
    assert read.library.find(module) is not None


def test_a_checkpoint_with_it(tmp_path: Path) -> None:
    (tmp_path / "modeling_day0.py").write_text(DAY0)
    (tmp_path / "configuration_day0.py").write_text(DAY0_CONFIG)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "day0", "architectures": ["Day0ForCausalLM"]}')
    read = read_checkpoint(str(tmp_path / "model"), source=tmp_path / "modeling_day0.py")
    assert (read.architecture, read.folder) == ("Day0ForCausalLM", tmp_path / "model")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of transformers, as far as fusec reads it: its version and one model differ."""
    installed = installed_library().root
    root = tmp_path / "src" / "transformers"
    for name in ("models/auto", "models/qwen3", "integrations/heterogeneity", "generation"):
        shutil.copytree(installed / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("configuration_utils.py", "modeling_rope_utils.py"):
        shutil.copy(installed / name, root / name)
    (root / "__init__.py").write_text('__version__ = "9.9.0.dev0"\n')
    file = root / "models/qwen3/configuration_qwen3.py"
    file.write_text(file.read_text().replace("hidden_size: int = 4096", "hidden_size: int = 321"))
    return root


def test_a_checkout(checkout: Path) -> None:
    """Everything comes from the checkout, the base classes too."""
    base = checkout / "configuration_utils.py"
    base.write_text(base.read_text().replace("chunk_size_feed_forward: int = 0", "chunk_size_feed_forward: int = 4"))
    read = read_checkpoint("qwen3", source=checkout / "models/qwen3/modeling_qwen3.py")
    assert read.library.version == "9.9.0.dev0"
    assert read.modeling.name == "transformers/models/qwen3/modeling_qwen3.py"
    assert read.modeling.origin == "transformers 9.9.0.dev0 checkout"
    config = resolve_config(read)
    assert (config["hidden_size"], config["chunk_size_feed_forward"]) == (321, 4)
    assert read.library.find("transformers.models.llama.modeling_llama") is None


def test_no_path_of_this_machine_in_what_is_read(checkout: Path) -> None:
    read = read_checkpoint("qwen3", source=checkout / "models/qwen3/modeling_qwen3.py")
    shown = f"{read.modeling.name} {read.modeling.origin} {read.configuration.name} {read.notes}"
    assert str(checkout.parent) not in shown


def test_refusals(tmp_path: Path, refusal: Refusal) -> None:
    assert refusal("qwen3", source=tmp_path / "absent.py").code == "FUS104"
    assert refusal("qwen3", source=tmp_path).code == "FUS104"
    (tmp_path / "modeling_x.py").write_text("class XForCausalLM(:\n")
    found = refusal("x", source=tmp_path / "modeling_x.py")
    assert (found.code, found.place) == ("FUS105", Place("modeling_x.py", 1, 20))
    (tmp_path / "modeling_y.py").write_text("class AForCausalLM:\n    pass\nclass BForCausalLM:\n    pass\n")
    assert refusal("y", source=tmp_path / "modeling_y.py").code == "FUS103"
