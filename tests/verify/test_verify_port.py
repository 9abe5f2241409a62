"""``fusec.verify_port``: from a package's folder and its lock to an outcome or a diagnostic."""

import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fusec
from fusec.diagnostics import EnvironmentProblem, FusecError, UsageProblem
from fusec.emit.lock import LOCK_NAME, Lock, SourceRecord
from fusec.plan.types import ParallelPlan
from fusec.read import installed_library
from fusec.verify import HARNESS_FILES, verify_port
from fusec.verify.harness import Session

from .ports import write_port
from .ports.families import FAMILIES

PLAN = ParallelPlan((), (1, 2), ("Three does not divide four heads.",), 4)


def write_package(out: Path, family: str, **changes: Any) -> Path:
    """The hand-written port with a lock, as if it had been converted from the installed transformers."""
    config = FAMILIES[family]
    module = f"transformers.models.{config['model_type']}.modeling_{config['model_type']}"
    source = installed_library().find(module)
    assert source is not None
    record = SourceRecord(source.name, source.module, source.origin, source.sha256, ".fusec/source/modeling.py")
    lock = Lock(
        fusec=fusec.__version__,
        transformers="5.19.0",
        engine="",
        package="dense_port",
        architecture=config["architectures"][0],
        model_type=config["model_type"],
        model=family,
        revision=None,
        remote_code=False,
        config=config,
        modeling_file="dense_port/modeling.py",
        modeling=record,
        configuration=record,
        patterns={},
        checks=(),
        plan=PLAN,
        changes=(),
        files={},
    )
    write_port(out, config["architectures"][0])
    kept = out / record.file
    kept.parent.mkdir(parents=True)
    kept.write_text(source.text)
    (out / LOCK_NAME).write_bytes(dataclasses.replace(lock, **changes).to_bytes())
    return out


def refusal(error: type[FusecError], code: str, *arguments: Any, **options: Any) -> str:
    with pytest.raises(error) as raised:
        verify_port(*arguments, **options)
    assert raised.value.diagnostics[0].code == code
    return str(raised.value)


def test_what_cannot_be_verified(tmp_path: Path) -> None:
    refusal(UsageProblem, "FUS001", tmp_path / "absent")
    out = write_package(tmp_path / "out", "qwen3")
    assert "Three does not divide" in refusal(UsageProblem, "FUS001", out, tp=3)
    refusal(UsageProblem, "FUS001", out, pp=5)
    refusal(UsageProblem, "FUS001", out, dtype="int8")
    refusal(UsageProblem, "FUS001", out, weights=True)
    refusal(UsageProblem, "FUS001", out, weights=True, model="qwen3")
    refusal(FusecError, "FUS101", out, model="./absent")
    (out / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert "declares no entry point" in refusal(UsageProblem, "FUS001", out)


def test_an_environment_without_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "vllm" else found(name, *rest))
    assert "vllm" in refusal(EnvironmentProblem, "FUS004", write_package(tmp_path / "out", "qwen3"))


@pytest.mark.engine
def test_on_tiny_weights_and_then_on_a_checkpoint_of_its_own(proofs: Session, tmp_path: Path) -> None:
    out = write_package(tmp_path / "out", "qwen3")
    parts: list[str] = []
    outcome = verify_port(out, session=proofs, progress=parts.append)
    assert outcome.passed, outcome.rows
    assert parts[0] == "running the original"

    model = tmp_path / "model"
    make_checkpoint(model)
    outcome = verify_port(out, model=model, weights=True, session=proofs)
    assert outcome.passed, outcome.rows


def make_checkpoint(folder: Path) -> None:
    """A checkpoint of another size, in bfloat16, made by its own process: torch stays out of this one's way."""
    program = (
        "import sys, torch; from transformers import Qwen3Config, Qwen3ForCausalLM; torch.manual_seed(1); "
        "config = Qwen3Config(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, "
        "num_key_value_heads=1, head_dim=32, vocab_size=1000, tie_word_embeddings=True, initializer_range=0.2); "
        "Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, capture_output=True)


@pytest.mark.engine
def test_the_original_is_the_file_that_was_converted(proofs: Session, tmp_path: Path) -> None:
    """A port of a changed modeling file is held against that file, which runs only where it is trusted."""
    out = write_package(tmp_path / "out", "qwen3")
    lock = json.loads((out / LOCK_NAME).read_text())
    kept = out / lock["modeling"]["file"]
    text = kept.read_text()
    assert text.count("return self.weight * hidden_states") == 1
    kept.write_text(text.replace("return self.weight * hidden_states", "return 1.5 * self.weight * hidden_states"))
    lock["modeling"]["sha256"] = "changed"
    (out / LOCK_NAME).write_text(json.dumps(lock))

    assert "--trust-remote-code" in refusal(FusecError, "FUS703", out, session=proofs)
    outcome = verify_port(out, trust_remote_code=True, session=proofs)
    assert not outcome.passed
    assert "layers.0.input_layernorm (its output" in outcome.rows[0].detail

    port = out / "dense_port" / "modeling.py"
    head = "from vllm.model_executor.layers.layernorm import RMSNorm\n"
    scaled = "class Scaled(RMSNorm):\n    def forward(self, *args):\n        y = super().forward(*args)\n"
    scaled += "        return (y[0] * 1.5, y[1]) if isinstance(y, tuple) else y * 1.5\n\n\n"
    text = port.read_text().replace("RMSNorm(", "Scaled(").replace("class DenseMLP", scaled + "class DenseMLP")
    assert head in text
    port.write_text(text)
    outcome = verify_port(out, trust_remote_code=True, session=proofs)
    assert outcome.passed, outcome.rows


OWN_CONFIGURATION = """\
from transformers import LlamaConfig

class HandmadeConfig(LlamaConfig):
    model_type = "handmade"
"""
OWN_MODELING = """\
from pathlib import Path
from transformers import LlamaForCausalLM
from .configuration_handmade import HandmadeConfig

class HandmadeForCausalLM(LlamaForCausalLM):
    config_class = HandmadeConfig
"""


@pytest.mark.engine
def test_an_original_that_came_with_the_checkpoint(proofs: Session, tmp_path: Path) -> None:
    """Code of a checkpoint runs only where it is trusted; the copy in the package is enough to run it."""
    config = {
        **FAMILIES["llama"],
        "architectures": ["HandmadeForCausalLM"],
        "model_type": "handmade",
        "auto_map": {
            "AutoConfig": "configuration_handmade.HandmadeConfig",
            "AutoModelForCausalLM": "modeling_handmade.HandmadeForCausalLM",
        },
    }
    out = write_package(tmp_path / "out", "llama", config=config, remote_code=True)
    shutil.rmtree(out / "dense_port")
    (out / "pyproject.toml").unlink()
    write_port(out, "HandmadeForCausalLM")
    sources = out / ".fusec" / "source"
    (sources / "modeling.py").unlink()
    (sources / "configuration_handmade.py").write_text(OWN_CONFIGURATION)
    marker = tmp_path / "ran"
    (sources / "modeling_handmade.py").write_text(f"{OWN_MODELING}\nPath({str(marker)!r}).touch()\n")

    assert "--trust-remote-code" in refusal(FusecError, "FUS703", out, session=proofs)
    assert not marker.exists()
    outcome = verify_port(out, trust_remote_code=True, session=proofs)
    assert outcome.passed, outcome.rows
    assert marker.exists()


@pytest.mark.engine
def test_an_original_that_cannot_run(proofs: Session, tmp_path: Path) -> None:
    config = {**FAMILIES["qwen3"], "architectures": ["NobodyForCausalLM"]}
    out = write_package(tmp_path / "out", "qwen3", config=config)
    assert "no class NobodyForCausalLM" in refusal(FusecError, "FUS703", out, session=proofs)


@pytest.mark.engine
def test_the_harness_stands_alone(tmp_path: Path) -> None:
    """Copied into a package, without fusec on the path, it proves the package from another process."""
    out = write_package(tmp_path / "out", "mistral")
    harness = out / "tests" / "harness"
    harness.mkdir(parents=True)
    for file in HARNESS_FILES:
        shutil.copy(file, harness / file.name)
    program = (
        "import sys, json; sys.path.insert(0, 'tests'); from pathlib import Path; "
        "from harness.checks import Request, prove; "
        "outcome = prove(Path('.'), Request(config=json.loads(Path('fusec.lock').read_text())['config'])); "
        "assert outcome.passed, outcome.rows; assert 'fusec' not in sys.modules; print('proved', outcome.port)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=out, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "proved dense_port.modeling.DenseForCausalLM"
    assert not list(out.rglob("*.npz"))
