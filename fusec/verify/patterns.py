"""Runs each pattern's reference computation and its engine layer on the same random inputs.

A pattern file takes part by two names beside ``reference``:

    TRIALS = ({"x": (7, 64), "weight": (64,), "eps": 1e-6},)
    def engine(layers, x, weight, eps): ...

A trial gives each parameter of ``reference`` a value; a tuple of integers is the shape of a
tensor of random numbers. ``engine`` gets the same, and ``layers``, whose attributes are the
engine's symbols by the names of :mod:`fusec.target.symbols`; ``layers.loaded(layer)`` does
what the engine does to a layer once its weights are in. Both give a tensor or a tuple of them.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from fusec.match.unit import Pattern
from fusec.target.symbols import SYMBOLS

SEED = 0
# Largest difference allowed, relative to the reference's largest value: a few roundings of the dtype.
BARS = {"float32": 1e-5, "bfloat16": 2**-6}


@dataclass(frozen=True)
class PatternCheck:
    """The result for one pattern. ``differences`` maps a dtype to the largest relative difference of all trials;
    ``untested`` is a pattern without an engine form of its own."""

    name: str
    status: Literal["passed", "failed", "untested"]
    differences: Mapping[str, float]
    detail: str = ""


class _Layers:
    """The engine's symbols as attributes, imported when asked for."""

    def __getattr__(self, name: str) -> Any:
        if name not in SYMBOLS:
            raise AttributeError(f"{name} is not in the table of engine symbols")
        return getattr(importlib.import_module(SYMBOLS[name].module), name)

    @staticmethod
    def loaded(layer: Any) -> Any:
        """``layer``, after the step that follows loading (it may pack the weights for the host's kernels)."""
        layer.quant_method.process_weights_after_loading(layer)
        return layer


def check_patterns(patterns: Sequence[Pattern]) -> tuple[PatternCheck, ...]:
    """Check each of ``patterns`` in this process. Imports torch and the engine."""
    with _engine():
        return tuple(map(_check, patterns))


def _check(pattern: Pattern) -> PatternCheck:
    import torch
    import torch.nn.functional as F  # as references call it
    from transformers.activations import ACT2FN

    names: dict[str, Any] = {"torch": torch, "F": F, "ACT2FN": ACT2FN, "__name__": f"trial of {pattern.name}"}
    exec(compile(pattern.source.text, pattern.source.name, "exec"), names)  # the user's own pattern, as when it matches
    if "engine" not in names or "reference" not in names:
        return PatternCheck(pattern.name, "untested", {})
    differences: dict[str, float] = {}
    try:
        for dtype in BARS:
            for trial in names["TRIALS"]:
                found = _difference(names, trial, getattr(torch, dtype))
                differences[dtype] = max(found, differences.get(dtype, 0.0))
    except Exception as error:
        return PatternCheck(pattern.name, "failed", differences, f"{type(error).__name__}: {error}")
    within = all(differences[dtype] <= bar for dtype, bar in BARS.items())  # false for nan, too
    return PatternCheck(pattern.name, "passed" if within else "failed", differences)


def _difference(names: Mapping[str, Any], trial: Mapping[str, Any], dtype: Any) -> float:
    """The largest difference of the two forms on one trial, over the reference's largest value."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    values = {
        name: torch.randn(value, generator=generator).to(dtype) if isinstance(value, tuple) else value
        for name, value in trial.items()
    }
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.no_grad():
            # Copies: an engine layer may work in place.
            expected, got = (
                function(*first, **{n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in values.items()})
                for function, first in ((names["reference"], ()), (names["engine"], (_Layers(),)))
            )
    finally:
        torch.set_default_dtype(default)
    pairs = list(zip(_tensors(expected), _tensors(got), strict=True))
    for left, right in pairs:
        if left.shape != right.shape:
            raise ValueError(f"the reference gives {tuple(left.shape)}, the engine {tuple(right.shape)}")
    return max(
        float((left.float() - right.float()).abs().max() / left.float().abs().max().clamp(min=1e-30))
        for left, right in pairs
    )


def _tensors(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


@contextmanager
def _engine() -> Iterator[None]:
    """What the engine's layers need around them: a configuration, and a group of one rank."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import (
        cleanup_dist_env_and_memory,
        init_distributed_environment,
        initialize_model_parallel,
    )

    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{folder}/rendezvous", 0, "gloo")
        initialize_model_parallel(1, 1)
        try:
            yield
        finally:
            cleanup_dist_env_and_memory()
