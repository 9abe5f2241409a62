"""A small real checkpoint: the same text from transformers, from vLLM's own class and from the port; and a server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fusec.verify import verify_port
from fusec.verify.harness import Session
from tests.serve.client import Engines

pytestmark = pytest.mark.engine

PROMPTS = [
    "The capital of France is",
    "<|im_start|>user\nWhat is a compiler?<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    ",
]
NEW_TOKENS = 32
PORT = "llama_port.modeling_llama.LlamaForCausalLM"
NATIVE = "vllm.model_executor.models.llama.LlamaForCausalLM"


@pytest.fixture(scope="module")
def expected(engines: Engines, smollm2: Path) -> dict[str, Any]:
    return engines.do("original_texts", model=str(smollm2), prompts=PROMPTS, new_tokens=NEW_TOKENS)


def test_the_same_text_from_all_three(
    engines: Engines, smollm2: Path, smollm2_port: Path, expected: dict[str, Any]
) -> None:
    """In float32: bfloat16 rounds in another order in each of the three, and where two tokens are near each other the
    texts part without a fault anywhere. In float32 all three agree to 1e-4, well below every lead seen here."""
    assert expected["smallest_lead"] > 1e-2
    assert len({text for text in expected["texts"] if text.strip()}) == len(PROMPTS)
    options = {"skip_tokenizer_init": False, "max_model_len": 256}
    facts = {"model": str(smollm2), "prompts": PROMPTS, "new_tokens": NEW_TOKENS, "options": options}
    native = engines.do("texts", **facts)
    port = engines.do("texts", smollm2_port, **facts)
    assert native["served_by"] == [NATIVE]
    assert port["served_by"] == [PORT]
    assert native["texts"] == expected["texts"]
    assert port["texts"] == expected["texts"]


def test_verify_on_the_real_weights(smollm2: Path, smollm2_port: Path, proofs: Session) -> None:
    outcome = verify_port(smollm2_port, model=smollm2, weights=True, session=proofs)
    assert outcome.passed, outcome.rows
    assert outcome.port == PORT
    assert [row.name for row in outcome.rows] == ["float32", "chunked prefill", "mixed batch"]
    assert outcome.logit_std > 1  # these weights give a distribution that a fault would change


def test_the_api_server_answers_with_the_port(
    smollm2: Path, smollm2_port: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    """Installed with pip, engine in a process of its own, which is spawned."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [*pip, "--disable-pip-version-check", f"--target={site}", str(smollm2_port)], check=True, timeout=120
    )
    with server(smollm2, site, tmp_path / "server.log") as (address, process):
        models = answer(f"{address}/v1/models", process)
        assert [model["id"] for model in models["data"]] == ["real"]
        request = {"model": "real", "prompt": PROMPTS, "max_tokens": NEW_TOKENS, "temperature": 0}
        completion = answer(f"{address}/v1/completions", process, request)
    assert [choice["text"] for choice in completion["choices"]] == expected["texts"]
    assert {choice["finish_reason"] for choice in completion["choices"]} <= {"length", "stop"}
    log = (tmp_path / "server.log").read_text(encoding="utf-8", errors="replace")
    served = [line for line in log.splitlines() if "LlamaForCausalLM is served by the port llama_port" in line]
    assert any(line.startswith("(Worker") for line in served), served


@contextmanager
def server(model: Path, site: Path, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """vLLM's API server for ``model`` on a free port of this host; ended with all its processes, whatever happens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(site),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_LOGGING_LEVEL": "INFO",
    }
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--served-model-name", "real", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", "256", "--enforce-eager",
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=log.parent, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=15)


def answer(address: str, process: subprocess.Popen[bytes], request: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON that the server answers; waits up to three minutes for the server to be there."""
    data = None if request is None else json.dumps(request).encode()
    asked = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=60) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except urllib.error.HTTPError:
            raise
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.5)
