"""``load_weights`` fills every parameter or fails and names what lacks; and it can be called again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.serve.client import Engines
from tests.serve.configs import config

pytestmark = pytest.mark.engine

Tensors = dict[str, np.ndarray]
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
SHAPE = {"num_key_value_heads": 2, "attention_bias": True, "num_hidden_layers": 2}
LAYER = "model.layers.1"

# One tensor of each kind, whose absence an engine's own bookkeeping would take for a filled parameter or not.
NEEDED = (
    EMBEDDING,
    HEAD,
    "model.norm.weight",
    f"{LAYER}.input_layernorm.weight",
    f"{LAYER}.self_attn.q_proj.weight",
    f"{LAYER}.self_attn.k_proj.weight",
    f"{LAYER}.self_attn.v_proj.weight",
    f"{LAYER}.self_attn.k_proj.bias",
    f"{LAYER}.self_attn.o_proj.weight",
    f"{LAYER}.self_attn.o_proj.bias",
    f"{LAYER}.mlp.gate_proj.weight",
    f"{LAYER}.mlp.up_proj.weight",
    f"{LAYER}.mlp.down_proj.weight",
)
# Leftovers in old checkpoints: tables that the model computes by itself.
LEFTOVERS = (f"{LAYER}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")
UNKNOWN = f"{LAYER}.self_attn.sinks"
UNEXPECTED_BIAS = f"{LAYER}.mlp.up_proj.bias"

# Whether head and embedding end as one tensor, by what the config says of tying and the checkpoint holds of the head.
TIES = {
    (True, "absent"): True,
    (True, "equal"): True,
    (True, "different"): False,
    (True, "alone"): True,
    (False, "equal"): False,
    (False, "different"): False,
}


def checkpoint(folder: Path, like: Path, tensors: Mapping[str, np.ndarray], **changes: Any) -> str:
    folder.mkdir(parents=True)
    content = json.loads((like / "config.json").read_text(encoding="utf-8")) | changes
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


@pytest.fixture(scope="module")
def model(engines: Engines, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "tiny"
    engines.do("tiny", folder=str(folder), config=config("llama", **SHAPE), seed=5)
    return folder


@pytest.fixture(scope="module")
def port(convert: Callable[..., Path]) -> Path:
    return convert("llama")


@pytest.fixture(scope="module")
def answers(
    model: Path, port: Path, engines: Engines, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What loading each changed checkpoint gave: all of them in one process."""
    root = tmp_path_factory.mktemp("changed")
    whole = load_file(model / "model.safetensors")
    folders = {"whole": str(model)}

    def add(name: str, tensors: Tensors, **changes: Any) -> None:
        folders[name] = checkpoint(root / re.sub(r"\W+", "-", name), model, tensors, **changes)

    for lacking in NEEDED:
        add(f"without {lacking}", {name: value for name, value in whole.items() if name != lacking})
    extra = {name: np.ones(16, np.float32) for name in (*LEFTOVERS, UNKNOWN, UNEXPECTED_BIAS)}
    for name in (UNKNOWN, UNEXPECTED_BIAS):
        add(f"with {name}", {**whole, name: extra[name]})
    add("with leftovers", {**whole, **{name: extra[name] for name in LEFTOVERS}})
    for tied, head in TIES:
        tensors = {name: value for name, value in whole.items() if name != HEAD}
        if head != "absent":
            tensors[HEAD] = whole[EMBEDDING] + (1 if head == "different" else 0)
        if head == "alone":
            tensors.pop(EMBEDDING)
        add(f"tied {tied}, head {head}", tensors, tie_word_embeddings=tied)
    for tied in (True, False):
        neither = {name: value for name, value in whole.items() if name not in (EMBEDDING, HEAD)}
        add(f"tied {tied}, neither", neither, tie_word_embeddings=tied)
    answer = engines.do("load", port, folders=folders)
    found: dict[str, dict[str, Any]] = answer["answers"]
    assert {value["served_by"] for value in found.values()} == {"llama_port.modeling_llama.LlamaForCausalLM"}
    found["log"] = {"text": answer["log"]}
    return found


def test_a_whole_checkpoint_fills_every_parameter(answers: dict[str, dict[str, Any]]) -> None:
    assert answers["whole"]["unfilled"] == []


@pytest.mark.parametrize("lacking", NEEDED)
def test_a_tensor_that_lacks_is_named(answers: dict[str, dict[str, Any]], lacking: str) -> None:
    assert answers[f"without {lacking}"].get("error") == f"ValueError: the checkpoint has no {lacking}"


@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_with_neither_head_nor_embedding(answers: dict[str, dict[str, Any]], tied: bool) -> None:
    names = [EMBEDDING] if tied else [HEAD, EMBEDDING]
    assert answers[f"tied {tied}, neither"].get("error") == f"ValueError: the checkpoint has no {', '.join(names)}"


def test_a_tensor_that_nothing_takes_is_named(answers: dict[str, dict[str, Any]]) -> None:
    assert UNKNOWN.removesuffix(".weight") in answers[f"with {UNKNOWN}"]["error"]


def test_what_is_skipped_is_named(answers: dict[str, dict[str, Any]]) -> None:
    """Tables that the model computes, and biases that it does not have, are left out, as transformers does; by name."""
    for case in ("with leftovers", f"with {UNEXPECTED_BIAS}"):
        assert answers[case].get("unfilled") == [], answers[case]
    for name in (*LEFTOVERS, UNEXPECTED_BIAS):
        assert name in answers["log"]["text"]


@pytest.mark.parametrize(("tied", "head"), TIES)
def test_head_and_embedding(answers: dict[str, dict[str, Any]], tied: bool, head: str) -> None:
    found = answers[f"tied {tied}, head {head}"]
    assert found.get("unfilled") == [], found
    assert found["tied"] == TIES[tied, head]


@pytest.mark.parametrize("tied", [True, False])
def test_loading_again_is_as_loading_afresh(tied: bool, port: Path, engines: Engines, tmp_path: Path) -> None:
    """From a folder, and as a trainer sends them: all at once."""
    folders = {name: tmp_path / name / "tiny" for name in ("first", "reloaded", "sent")}
    for seed, folder in enumerate(folders.values()):
        engines.do("tiny", folder=str(folder), config=config("llama", **SHAPE, tie_word_embeddings=tied), seed=seed)
    then = {name: str(folders[name]) for name in ("reloaded", "sent")}
    again = engines.do("reload", port, model=str(folders["first"]), then=then)
    with np.load(again["work"] / "first.npz") as stored:
        before = stored["0"]
    for name, folder in then.items():
        fresh = engines.do("generate", port, model=folder)
        with np.load(fresh["work"] / "logprobs.npz") as expected, np.load(again["work"] / f"{name}.npz") as found:
            assert np.abs(expected["0"] - found["0"]).max() <= 1e-5, name
            assert np.abs(before - found["0"]).max() > 1  # not the model before
            before = found["0"]


def test_an_engine_that_starts_without_weights_takes_them_from_a_trainer(
    model: Path, port: Path, engines: Engines
) -> None:
    then = {"sent": str(model)}
    late = engines.do("reload", port, model=str(model), then=then, options={"load_format": "dummy"})
    fresh = engines.do("generate", port, model=str(model))
    with np.load(fresh["work"] / "logprobs.npz") as expected, np.load(late["work"] / "sent.npz") as found:
        assert np.abs(expected["0"] - found["0"]).max() <= 1e-5
        with np.load(late["work"] / "first.npz") as before:
            assert np.abs(before["0"] - found["0"]).max() > 1
