"""Runs the port in the real engine. What a job asks for is in :class:`Job`; log-probabilities come back in an npz file.

Only :func:`prepare` and :func:`run` import vLLM; the rest is for both sides.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# How vLLM says that a model lacks its compile decorator (it warns, and runs slowly). The wording moves.
NOT_COMPILED = re.compile(r"turned on, but the model|does not support (`?torch\.?compile`?|compilation)", re.IGNORECASE)


@dataclass(frozen=True)
class Job:
    """One engine and what it generates.

    ``batches`` are runs one after another, each of prompts that are sent at once; ``token_budget`` limits the tokens
    of a step (and so cuts prompts into chunks); ``record_layers`` has every module recorded over the first prompt;
    ``modules`` is a file of module inputs to run them on (see :mod:`.rounding`).
    """

    name: str
    model: str
    batches: tuple[tuple[tuple[int, ...], ...], ...]
    new_tokens: int
    work: str
    dtype: str = "float32"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    eager: bool = True
    token_budget: int | None = None
    max_model_len: int = 128
    record_layers: bool = False
    modules: str | None = None
    trust_remote_code: bool = False
    timeout: float = 600.0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One step of the scheduler in one batch: tokens of prompts, and requests that decoded."""

    batch: int
    prompt_tokens: int
    prompts: int
    decodes: int


# ---- what runs inside the engine's workers -------------------------------------------------------------------------


def describe_model(model: Any) -> dict[str, Any]:
    """In a worker: which class serves, what it says it fused, and how many of its modules vLLM compiles."""
    from vllm.compilation.counter import compilation_counter

    kind = type(model)
    return {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "packed": {key: list(parts) for key, parts in (getattr(kind, "packed_modules_mapping", None) or {}).items()},
        "compiled": compilation_counter.num_models_seen,
    }


def make_stage_inputs(worker: Any) -> None:
    """In a worker: the buffers for what the stage before hands on, which the engine makes in the warm-up that an eager
    engine on the CPU leaves out."""
    runner = worker.model_runner
    if getattr(runner, "intermediate_tensors", None) is None:
        runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
        )


# ---- one engine, in a fork -----------------------------------------------------------------------------------------


def prepare() -> None:
    """Import what every engine needs."""
    from vllm import LLM, SamplingParams  # noqa: F401
    from vllm.model_executor.models import registry

    # vLLM looks at a model class in a new process, so that the class does not initialise a device in this one. A fork
    # is as separate and needs no import of its own.
    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = _run_in_fork


def _run_in_fork(function: Callable[[], Any]) -> Any:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            payload = pickle.dumps((True, function()))
        except BaseException:
            payload = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(payload)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        payload = pipe.read()
    os.waitpid(pid, 0)
    worked, value = pickle.loads(payload) if payload else (False, "the process died")
    if not worked:
        raise RuntimeError(value)
    return value


@contextlib.contextmanager
def _watch_scheduler(llm: Any, steps: list[Step], batch: list[int]) -> Iterator[None]:
    """Note what each step of the scheduler holds, so that a check can tell that it ran what it is named after."""
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    original = scheduler.schedule

    def schedule(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        prompt_tokens = prompts = decodes = 0
        for request_id, count in output.num_scheduled_tokens.items():
            request = scheduler.requests[request_id]
            if request.num_computed_tokens - count < request.num_prompt_tokens:
                prompts += 1
                prompt_tokens += count
            else:
                decodes += 1
        steps.append(Step(batch[0], prompt_tokens, prompts, decodes))
        return output

    scheduler.schedule = schedule
    try:
        yield
    finally:
        scheduler.schedule = original


def _row(distribution: Any, index: int, size: int) -> np.ndarray:
    """One position of vLLM's flat log-probabilities as a row over the vocabulary."""
    row = np.full(size, np.nan, dtype=np.float32)
    start, end = distribution.start_indices[index], distribution.end_indices[index]
    row[distribution.token_ids[start:end]] = distribution.logprobs[start:end]
    return row


def _rows(output: Any, size: int) -> np.ndarray:
    prompt, decode = output.prompt_logprobs, output.outputs[0].logprobs
    rows = [_row(prompt, index, size) for index in range(1, len(prompt))]
    rows += [_row(decode, index, size) for index in range(len(decode))]
    return np.stack(rows)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Start the engine, generate, write ``<name>.npz`` (``logprobs_<batch>_<sequence>``, ``tokens_...``)."""
    import torch
    from vllm import LLM, SamplingParams

    started = time.monotonic()
    # Eager means eager: vLLM compiles a helper of its sampler even then, and that costs more than all else.
    torch._dynamo.config.disable = job["eager"]
    options: dict[str, Any] = {}
    if job["token_budget"]:
        options["max_num_batched_tokens"] = job["token_budget"]
    llm = LLM(
        model=job["model"],
        skip_tokenizer_init=True,
        trust_remote_code=job["trust_remote_code"],
        dtype=job["dtype"],
        tensor_parallel_size=job["tensor_parallel"],
        pipeline_parallel_size=job["pipeline_parallel"],
        enforce_eager=job["eager"],
        max_model_len=job["max_model_len"],
        max_num_seqs=8,
        max_logprobs=-1,
        enable_prefix_caching=False,
        enable_chunked_prefill=True,
        generation_config="vllm",
        disable_log_stats=True,
        seed=0,
        **options,
    )
    loaded = time.monotonic()
    answer: dict[str, Any] = {"workers": llm.apply_model(describe_model), "load_seconds": loaded - started}
    if job["pipeline_parallel"] > 1:
        llm.collective_rpc(make_stage_inputs)
    size = llm.model_config.get_vocab_size()
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=job["new_tokens"],
        min_tokens=job["new_tokens"],
        ignore_eos=True,
        prompt_logprobs=-1,
        logprobs=-1,
        detokenize=False,
        flat_logprobs=True,
    )
    arrays: dict[str, np.ndarray] = {}
    steps: list[Step] = []
    batch = [0]
    with _watch_scheduler(llm, steps, batch):
        for batch[0], prompts in enumerate(job["batches"]):
            outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
            for index, output in enumerate(outputs):
                arrays[f"logprobs_{batch[0]}_{index}"] = _rows(output, size)
                arrays[f"tokens_{batch[0]}_{index}"] = np.array(output.outputs[0].token_ids)
    np.savez(Path(job["work"]) / f"{job['name']}.npz", allow_pickle=False, **arrays)
    if job["record_layers"]:
        _record_layers(llm, job["batches"][0][0], Path(job["work"]) / f"{job['name']}.layers.npz")
    if job["modules"]:
        from .rounding import measure

        answer["modules"] = llm.apply_model(functools.partial(measure, path=job["modules"]))[0]
    answer["steps"] = [asdict(step) for step in steps]
    answer["seconds"] = time.monotonic() - started
    return answer


def not_compiled(log: str) -> str | None:
    """The line of an engine's log that says that the model is not compiled."""
    return next((line.strip() for line in log.splitlines() if NOT_COMPILED.search(line)), None)


def root_cause(log: str) -> str | None:
    """The first error in an engine's log: what follows is only its consequence."""
    for line in log.splitlines():
        if " WARNING " in line:
            continue
        found = re.search(r"(?:^|\]\s)((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)): (.+)$", line)
        if found:
            return f"{found.group(1)}: {found.group(2).strip()}"
    return None


def _record_layers(llm: Any, prompt: list[int], path: Path) -> None:
    """Record every module over one prompt; with one worker in this process alone."""
    from vllm import SamplingParams

    from .layers import Recorder, save

    kept: list[Recorder] = []

    def attach(model: Any) -> None:
        kept.append(Recorder(model, len(prompt)))

    llm.apply_model(attach)
    llm.generate(
        [{"prompt_token_ids": prompt}], SamplingParams(temperature=0.0, max_tokens=1, detokenize=False), use_tqdm=False
    )
    kept[0].remove()
    save(path, kept[0].values)
