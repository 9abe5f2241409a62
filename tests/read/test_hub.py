"""The Hub, through huggingface_hub, against a stand-in on this machine.

Each read is a process of its own, since that library reads its settings once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("hub_stub", Path(__file__).with_name("hub_stub.py"))
assert _spec is not None
assert _spec.loader is not None
hub_stub = importlib.util.module_from_spec(_spec)
sys.modules["hub_stub"] = hub_stub
_spec.loader.exec_module(hub_stub)

CONFIG = json.dumps({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64}).encode()
OWN = {
    "config.json": json.dumps(
        {
            "model_type": "own",
            "architectures": ["OwnForCausalLM"],
            "auto_map": {
                "AutoConfig": "configuration_own.OwnConfig",
                "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
            },
        }
    ).encode(),
    "modeling_own.py": b"from .part import X\n\n\nclass OwnForCausalLM:\n    pass\n",
    "configuration_own.py": b"class OwnConfig:\n    model_type = 'own'\n",
    "part.py": b"X = 1\n",
    "pytorch_model.bin": b"never fetched",
}
ELSEWHERE = {
    "config.json": OWN["config.json"]
    .replace(b"configuration_own.Own", b"org/own--configuration_own.Own")
    .replace(b"modeling_own.Own", b"org/own--modeling_own.Own"),
}
READ = """
import dataclasses, json, sys
from fusec.diagnostics import FusecError
from fusec.read import read_checkpoint
options = json.loads(sys.argv[2])
try:
    c = read_checkpoint(sys.argv[1], **options)
except FusecError as error:
    d = error.diagnostics[0]
    print(json.dumps({"code": d.code, "exit": error.exit_status, "message": d.message, "hint": d.hint}))
else:
    part = c.library.find(c.modeling.module.rpartition(".")[0] + ".part")
    print(json.dumps({
        "modeling": c.modeling.name, "configuration": c.configuration.name, "revision": c.revision,
        "remote_code": c.remote_code, "hidden": c.config.get("hidden_size"), "part": part and part.text,
        "tensors": c.tensors and {k: [v.shape, v.dtype] for k, v in c.tensors.items()},
        "heavy": sorted({"torch", "transformers", "vllm"} & set(sys.modules)),
    }))
"""


@pytest.fixture
def hub(safetensors: Callable[..., bytes]) -> Iterator[Any]:
    index = json.dumps({"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}).encode()
    repos = {
        "org/plain": {"config.json": CONFIG, "model.safetensors": safetensors(a=[2, 3])},
        "org/sharded": {"config.json": CONFIG, "model.safetensors.index.json": index},
        "org/bare": {"config.json": CONFIG},
        "org/gated": {"config.json": CONFIG},
        "org/empty": {"README.md": b"x"},
        "org/own": OWN,
        "org/elsewhere": ELSEWHERE,
        "org/broken": {"config.json": b"{", "model.safetensors": b"zz"},
        "org/failing": {},
    }
    with hub_stub.serve(hub_stub.Hub(repos, gated=("org/gated",), failing=("org/failing",))) as running:
        yield running


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(model: str, endpoint: str, offline: bool = False, **options: Any) -> dict[str, Any]:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))},
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": "1" if offline else "0",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "-c", READ, model, json.dumps(options)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


Read = Callable[..., dict[str, Any]]


def test_a_model(hub: Any, read: Read) -> None:
    answer = read("org/plain", hub.endpoint)
    assert answer["hidden"] == 64
    assert answer["revision"] == hub_stub.COMMIT
    assert answer["tensors"] == {"a": [[2, 3], "F32"]}
    assert answer["heavy"] == []


def test_an_index_is_enough(hub: Any, read: Read) -> None:
    answer = read("org/sharded", hub.endpoint)
    assert answer["tensors"] == {"a": [None, None], "b": [None, None]}
    assert not any("of-2" in request for request in hub.asked)


def test_no_weights(hub: Any, read: Read) -> None:
    assert read("org/bare", hub.endpoint)["tensors"] is None


def test_own_code(hub: Any, read: Read) -> None:
    answer = read("org/own", hub.endpoint)
    assert (answer["modeling"], answer["configuration"]) == ("modeling_own.py", "configuration_own.py")
    assert answer["remote_code"] is True
    assert answer["part"] == "X = 1\n"
    assert not any("pytorch_model" in request for request in hub.asked)


def test_own_code_in_another_repository(hub: Any, read: Read) -> None:
    answer = read("org/elsewhere", hub.endpoint)
    assert (answer["modeling"], answer["part"]) == ("modeling_own.py", "X = 1\n")


def test_the_cache_serves_offline(hub: Any, read: Read) -> None:
    online = read("org/own", hub.endpoint)
    assert read("org/own", hub.endpoint, offline=True) == online
    hub.asked.clear()
    plain = read("org/plain", hub.endpoint)
    offline = read("org/plain", hub.endpoint, offline=True)
    assert offline == {**plain, "tensors": None}  # the header was asked for, not cached


def test_offline_without_a_cache(hub: Any, read: Read) -> None:
    answer = read("org/plain", hub.endpoint, offline=True)
    assert (answer["code"], answer["exit"]) == ("FUS106", 3)
    assert hub.asked == []


def test_gated(hub: Any, read: Read) -> None:
    answer = read("org/gated", hub.endpoint)
    assert (answer["code"], answer["exit"]) == ("FUS106", 1)
    assert "hf auth login" in answer["hint"]
    assert read("org/gated", hub.endpoint, token="good")["hidden"] == 64


def test_not_found(hub: Any, read: Read) -> None:
    assert read("org/absent", hub.endpoint)["code"] == "FUS101"


def test_a_revision(hub: Any, read: Read) -> None:
    assert read("org/bare", hub.endpoint, revision=hub_stub.COMMIT)["revision"] == hub_stub.COMMIT
    answer = read("org/bare", hub.endpoint, revision="no-such-branch")
    assert answer["code"] == "FUS101"
    assert "no-such-branch" in answer["message"]


def test_no_config(hub: Any, read: Read) -> None:
    assert read("org/empty", hub.endpoint)["code"] == "FUS102"


def test_malformed_config(hub: Any, read: Read) -> None:
    assert read("org/broken", hub.endpoint)["code"] == "FUS102"


def test_a_server_error(hub: Any, read: Read) -> None:
    answer = read("org/failing", hub.endpoint)
    assert (answer["code"], answer["exit"]) == ("FUS106", 3)


def test_no_network(read: Read) -> None:
    with socket.socket() as unused:  # bound and never listening: connections are refused at once
        unused.bind(("127.0.0.1", 0))
        answer = read("org/plain", f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert (answer["code"], answer["exit"]) == ("FUS106", 3)
