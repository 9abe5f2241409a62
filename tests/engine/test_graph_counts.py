from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.coverage import AXES, cases
from tests.engine.graph_counts import _with_layers, count_per_layer

pytestmark = pytest.mark.engine

# A class whose layers have one matmul more than the engine's own, and the plugin that registers it.
PORT = """
import torch
from vllm.model_executor.models.llama import LlamaDecoderLayer, LlamaForCausalLM


class Layer(LlamaDecoderLayer):
    def forward(self, positions, hidden_states, residual):
        hidden_states, residual = super().forward(positions, hidden_states, residual)
        return hidden_states @ torch.eye(hidden_states.shape[-1], dtype=hidden_states.dtype), residual


class Port(LlamaForCausalLM):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__(vllm_config=vllm_config, prefix=prefix, layer_type=Layer)
"""
PLUGIN = """
def register():
    from vllm import ModelRegistry

    ModelRegistry.register_model("LlamaForCausalLM", "toyport.model:Port")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = next(case for case in cases() if case.model_type == "llama" and case.levels["rope"] == "default")
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(case.config), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    package, info = folder / "toyport", folder / "toyport-1.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text(PLUGIN, encoding="utf-8")
    (package / "model.py").write_text(PORT, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyport\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\ntoyport = toyport:register\n", encoding="utf-8")
    return folder


def test_the_engines_class_and_its_backend(model: Path) -> None:
    native, backend = count_per_layer(model, "native"), count_per_layer(model, "backend")
    assert native.model_class.startswith("vllm.model_executor.models.llama.")
    assert backend.model_class.startswith("vllm.model_executor.models.transformers.")
    for counts in (native, backend):  # qkv, o, gate and up, down
        assert counts.matmuls == 4
        assert counts.functions["vllm.unified_attention_with_output"] == 1


def test_a_port_is_the_class_that_ran_and_a_matmul_more_is_seen(model: Path, site: Path) -> None:
    port = count_per_layer(model, "port", site=site)
    assert port.model_class == "toyport.model.Port"
    assert port.matmuls == 5


def test_the_engines_kernels_are_single_nodes(model: Path) -> None:
    spelled_out, kernels = (count_per_layer(model, "native", kernels=on) for on in (False, True))
    assert kernels.engine_operators > spelled_out.engine_operators
    assert kernels.nodes < spelled_out.nodes


def test_lists_per_layer_follow_the_number_of_layers() -> None:
    config = {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 0, 1], "architectures": ["A"], **AXES["window"]["mixed"]}
    longer = _with_layers(config, 6)
    assert longer["no_rope_layers"] == [1, 1, 0, 1, 1, 1]
    assert longer["layer_types"] == ["sliding_attention", "full_attention"] * 3
    assert longer["architectures"] == ["A"]
