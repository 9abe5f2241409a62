"""Installed packages in the real engine: each serves the checkpoints that it fits, in every process, and no others.

Four packages are in one environment: ``toy_a`` and ``toy_b`` fit configs of one architecture with different values,
``toy_c`` fits all configs of it, and ``toy_h`` is for an architecture that vLLM leaves to its transformers backend.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fusec.emit import emit_package
from fusec.plan.types import FoldedCheck

FIXTURES = Path(__file__).parent / "fixtures"
NATIVE = "vllm.model_executor.models.llama.LlamaForCausalLM"
BACKEND = "vllm.model_executor.models.transformers.TransformersForCausalLM"
TOY = {
    "toy_a": "toy_a.modeling_llama.LlamaForCausalLM",
    "toy_b": "toy_b.modeling_llama.LlamaForCausalLM",
    "toy_c": "toy_c.modeling_llama.LlamaForCausalLM",
    "toy_h": "toy_h.modeling_helium.HeliumForCausalLM",
}
CONFIG = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32,
    "intermediate_size": 96, "vocab_size": 128, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "dtype": "float32", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def folded(act: str) -> tuple[FoldedCheck, ...]:
    return (FoldedCheck("config.hidden_act", act, "the activation was folded"),)


@pytest.fixture(scope="module")
def site(facts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the packages are installed to with pip, as `pip install out/` does."""
    root = tmp_path_factory.mktemp("packages")
    packages = {
        "toy_a": facts("LlamaForCausalLM", "llama", folded("silu")),
        "toy_b": facts("LlamaForCausalLM", "llama", folded("gelu")),
        "toy_c": facts("LlamaForCausalLM", "llama"),
        "toy_h": facts("HeliumForCausalLM", "helium", folded("silu")),
    }
    for name, made in packages.items():
        emit_package(*made, root / name, package_name=name)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    folders = [str(root / name) for name in packages]
    subprocess.run([*command, "--disable-pip-version-check", f"--target={root / 'site'}", *folders], check=True)
    return root / "site"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory):
    root = tmp_path_factory.mktemp("checkpoints")

    def make(act: str, architecture: str = "LlamaForCausalLM", model_type: str = "llama") -> str:
        folder = root / f"{architecture}-{model_type}-{act}"
        folder.mkdir(exist_ok=True)
        config = {**CONFIG, "architectures": [architecture], "model_type": model_type, "hidden_act": act}
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)

    return make


def run(script: str, site: Path, cases: dict[str, Any], **environment: str) -> tuple[list[Any], str]:
    """The results that a script of the fixtures prints, and all that it and its processes logged."""
    env = {**os.environ, "PYTHONPATH": str(site), "VLLM_LOGGING_LEVEL": "INFO", **environment}
    done = subprocess.run(
        [sys.executable, str(FIXTURES / script), json.dumps(cases)],
        env=env, cwd=site.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return [json.loads(line) for line in lines], done.stdout + done.stderr


ONLY_WITH_CHECKS = {"FUSEC_DISABLE": "toy_c", "FUSEC_PORT": ""}
ALL = {"FUSEC_DISABLE": "", "FUSEC_PORT": ""}
HELIUM = ("HeliumForCausalLM", "helium")

# name: (checkpoint, environment, options of the engine, the class expected)
CASES: dict[str, tuple[tuple[str, ...], dict[str, str], dict[str, Any], str]] = {
    "fits a": (("silu",), ONLY_WITH_CHECKS, {}, TOY["toy_a"]),
    "fits b": (("gelu",), ONLY_WITH_CHECKS, {}, TOY["toy_b"]),
    "fits neither": (("relu",), ONLY_WITH_CHECKS, {}, NATIVE),
    "fits c alone": (("relu",), ALL, {}, TOY["toy_c"]),
    "another model type": (("silu", "LlamaForCausalLM", "mistral"), ALL, {}, NATIVE),
    "fits two": (("silu",), ALL, {}, "Several installed ports"),
    "fits two, one chosen": (("silu",), {**ALL, "FUSEC_PORT": "toy_c"}, {}, TOY["toy_c"]),
    "fits two, the other chosen": (("silu",), {**ALL, "FUSEC_PORT": "other, toy_a"}, {}, TOY["toy_a"]),
    "all switched off": (("silu",), {**ALL, "FUSEC_DISABLE": "all"}, {}, NATIVE),
    "each switched off": (("silu",), {**ALL, "FUSEC_DISABLE": "toy_a, toy_c"}, {}, NATIVE),
    "another architecture of the family": (("silu", "LlamaForSequenceClassification"), ONLY_WITH_CHECKS, {}, NATIVE),
    "the backend asked for": (("silu",), ALL, {"model_impl": "transformers"}, BACKEND),
    "not in vLLM, fits": (("silu", *HELIUM), ALL, {}, TOY["toy_h"]),
    "not in vLLM, does not fit": (("relu", *HELIUM), ALL, {}, BACKEND),
    "not in vLLM, switched off": (("silu", *HELIUM), {**ALL, "FUSEC_DISABLE": "toy_h"}, {}, BACKEND),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(site: Path, checkpoint) -> dict[str, dict[str, str]]:
    cases = {
        name: {"model": checkpoint(*model), "environment": environment, "options": options}
        for name, (model, environment, options, _) in CASES.items()
    }
    return run("resolve.py", site, cases)[0][0]


@pytest.mark.engine
@pytest.mark.parametrize("name", CASES)
def test_who_serves(answers: dict[str, dict[str, str]], name: str) -> None:
    expected = CASES[name][-1]
    if expected.startswith("Several"):
        assert set(answers[name]) == {"parent"}
        sentence = f"{expected} serve LlamaForCausalLM and fit this checkpoint: toy_a, toy_c."
        assert sentence in answers[name]["parent"]
        assert "Choose one with FUSEC_PORT=toy_a" in answers[name]["parent"]
    else:
        assert set(answers[name]) >= {"parent", "fork", "spawn"}
        assert {answer.split(" as ")[0] for answer in answers[name].values()} == {expected}


@pytest.mark.engine
def test_a_second_engine_of_one_process_does_not_get_the_class_of_the_first(answers: dict[str, dict[str, str]]) -> None:
    """These cases are one folder under one path, loaded one after another in the parent."""
    one_folder = [name for name, case in CASES.items() if case[0] == ("silu",) and "loader" in answers[name]]
    assert len({answers[name]["loader"] for name in one_folder}) == 4  # two ports, vLLM's class and the backend


@pytest.mark.engine
def test_the_architecture_keeps_its_name(answers: dict[str, dict[str, str]]) -> None:
    """vLLM looks up its own settings of an architecture by that name."""
    assert answers["fits a"]["parent"].endswith(" as LlamaForCausalLM")
    assert answers["not in vLLM, fits"]["parent"].endswith(" as HeliumForCausalLM")


@pytest.mark.engine
def test_a_later_registration_of_somebody_else_wins(answers: dict[str, dict[str, str]]) -> None:
    assert answers["foreign"]["parent"].startswith("toy_h.modeling_helium.HeliumForCausalLM ")


@pytest.mark.engine
def test_vllms_own_list_of_plugins_is_by_package_name(answers: dict[str, dict[str, str]]) -> None:
    assert answers["VLLM_PLUGINS"]["parent"] == "toy_b"


@pytest.mark.engine
def test_real_engines(site: Path, checkpoint) -> None:
    """An engine in a process of its own, one with all ports switched off, and one with two spawned workers.

    The CPU platform spawns whatever it is told; workers that are forks are in tests/serve."""
    environment = {
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # to ask a worker for its model's class
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "fork",
        **ONLY_WITH_CHECKS,
    }
    # the engine of this one is in the parent, which saves the start of a process; its workers are not
    spawn = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    cases = {
        "fork": {"model": checkpoint("gelu"), "tensor_parallel": 1, "environment": environment},
        "off": {
            "model": checkpoint("silu"),
            "tensor_parallel": 1,
            "environment": environment | {"FUSEC_DISABLE": "all"},
        },
        "spawn": {"model": checkpoint("silu"), "tensor_parallel": 2, "environment": environment | spawn},
    }
    results, log = run("serve.py", site, cases)
    assert dict(results) == {"fork": [TOY["toy_b"]], "off": [NATIVE], "spawn": [TOY["toy_a"]] * 2}
    instead = "(on purpose, in place of the class that vLLM has for it)"
    assert f"LlamaForCausalLM is served by the port toy_a {instead}" in log
    assert "The port toy_b does not serve this LlamaForCausalLM checkpoint: config.hidden_act is 'silu'" in log
    assert "The port toy_a does not serve this LlamaForCausalLM checkpoint: FUSEC_DISABLE names it." in log


def test_importing_a_package_imports_nothing(site: Path) -> None:
    program = "import sys; before = set(sys.modules); import toy_a, toy_h; print(sorted(set(sys.modules) - before))"
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['toy_a', 'toy_h']"
