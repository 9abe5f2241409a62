"""Runs the original: log-probabilities at every position of the prompts and along greedy decoding.

In a process of its own, on the CPU, in float32 with eager attention, without a cache, so that nothing but the
original's own arithmetic takes part. The same inputs through its sdpa attention tell how far the original is from
itself, and a bfloat16 run how far that dtype takes it.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import layers, rounding
from .checkpoint import Code, NoOriginal, load_config, original_class, write_tiny


def load(folder: Path, dtype: torch.dtype, attention: str, code: Code) -> Any:
    """The original with the checkpoint's weights; :class:`NoOriginal` if the checkpoint leaves a parameter unfilled."""
    cls = original_class(load_config(folder, code.trusted), folder, code)
    model, loading = cls.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention, output_loading_info=True, trust_remote_code=code.trusted
    )
    missing = sorted(loading["missing_keys"])
    if missing:
        raise NoOriginal(f"the checkpoint has no tensor for {', '.join(missing[:5])}")
    return model.eval()


def log_probabilities(model: Any, tokens: list[int]) -> np.ndarray:
    """float32 ``[len(tokens), vocabulary]``: row i is the distribution of token i + 1 after the first i + 1 tokens."""
    with torch.inference_mode():
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
        logits = logits if logits.dtype == torch.float64 else logits.float()
    return np.asarray(torch.log_softmax(logits, dim=-1).float().numpy())


def greedy(model: Any, prompt: list[int], new_tokens: int) -> tuple[list[int], np.ndarray]:
    """The greedy continuation of ``prompt``, each token from a run over everything before it; and the
    log-probabilities of the last of these runs, whose input is everything but the last new token."""
    tokens = list(prompt)
    rows = np.empty(0)
    for _ in range(new_tokens):
        rows = log_probabilities(model, tokens)
        tokens.append(int(rows[-1].argmax()))
    return tokens[len(prompt) :], rows


def prepare() -> None:
    """Import what every original needs."""
    import transformers.modeling_utils  # noqa: F401


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Write ``<name>.npz`` and ``<name>.layers.npz`` to the job's folder (``work``).

    The job names a checkpoint (``model``) or has it made (``config``, ``seed``); ``code`` and ``source`` say where the
    original is, if not in transformers; ``record`` is the number of the prompt over which every module is recorded.
    """
    work = Path(job["work"])
    code = Code(
        job["trust_remote_code"],
        Path(job["code"]) if job["code"] else None,
        (Path(job["source"][0]), job["source"][1]) if job["source"] else None,
    )
    prompts: list[list[int]] = job["prompts"]
    if job["model"]:
        model_folder = Path(job["model"])
    else:
        model_folder = work / "tiny"
        write_tiny(job["config"], model_folder, prompts, seed=job["seed"], code=code)

    model = load(model_folder, torch.float32, "eager", code)
    continuations = [greedy(model, prompt, job["new_tokens"]) for prompt in prompts]
    arrays: dict[str, np.ndarray] = {}
    inputs: list[list[int]] = []
    for index, (prompt, (new, rows)) in enumerate(zip(prompts, continuations, strict=True)):
        arrays[f"logprobs_{index}"], arrays[f"tokens_{index}"] = rows, np.array(new)
        inputs.append([*prompt, *new][:-1])  # the last token generated is never an input

    recorded = prompts[job["record"]]
    with layers.recording(model, len(recorded)) as recorder:
        log_probabilities(model, recorded)
    layers.save(work / f"{job['name']}.layers.npz", recorder.values)

    std = float(np.mean([arrays[f"logprobs_{index}"].std(axis=-1).mean() for index in range(len(inputs))]))
    own, own_note = _own_difference(model_folder, code, inputs, arrays, exact=job["real"])
    if job["bfloat16"]:
        low = load(model_folder, torch.bfloat16, "eager", code)
        for index, tokens in enumerate(inputs):
            arrays[f"bfloat16_{index}"] = log_probabilities(low, tokens)
        rounding.record(low, model, recorded, work / f"{job['name']}.modules.npz")
    np.savez(work / f"{job['name']}.npz", allow_pickle=False, **arrays)
    return {
        "model": str(model_folder),
        "own_difference": own,
        "own_note": own_note,
        "logit_std": std,
    }


def _own_difference(
    folder: Path, code: Code, inputs: list[list[int]], arrays: dict[str, np.ndarray], exact: bool
) -> tuple[float, str]:
    """How far the original is from itself: between its eager and sdpa attention in float32 and, if ``exact``, of both
    from float64. Real weights have outliers that the two attentions treat alike but another order of sums does not."""
    runs = [[arrays[f"logprobs_{index}"] for index in range(len(inputs))]]
    notes = []
    for dtype, attention in ((torch.float32, "sdpa"), (torch.float64, "eager"))[: 2 if exact else 1]:
        try:
            model = load(folder, dtype, attention, code)
            runs.append([log_probabilities(model, tokens) for tokens in inputs])
        except (ValueError, ImportError, RuntimeError) as error:  # no such attention, or a dtype that it cannot mix
            notes.append(f"the original does not run with {attention} attention in {dtype} ({error})")
    largest = 0.0
    for left, right in itertools.combinations(runs, 2):
        for ours, theirs in zip(left, right, strict=True):
            largest = max(largest, float(np.nan_to_num(np.abs(ours - theirs), nan=0.0).max()))
    return largest, "; ".join(notes)
