"""Compares modules on the same inputs in bfloat16: what float32 cannot tell apart is where a value is rounded.

The original's bfloat16 run gives each module's input and output, the float32 original the exact output for that input.
The port's module of the same name gets the same input. Two errors are held against the original's own: that of single
values, which one rounding more makes 1.4 times as large, and that of a row's scale, in which single roundings cancel
and only a number that a whole row shares (a variance, a divisor) shows, and adds up over layers.
Modules that need more than one tensor (attention with its cache) are compared by the whole run alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Of single values: passes one rounding more, which the engine's layers may do.
ERROR_FACTOR = 1.5
# Of a row's scale: rounding a shared number makes it some ten times as large.
SCALE_FACTOR = 3.0
# Real models have gigabytes of activations; the first modules are enough of them.
MOST_VALUES = 20_000_000


@dataclass(frozen=True)
class Rounding:
    """One module name (the number of its layer as ``*``) over all layers, port against original.

    ``error`` and ``scale`` are the port's mean absolute errors, of values and of the scale of rows, in units of the
    original's; ``differing`` is the share of values that are not the same.
    """

    module: str
    error: float
    scale: float
    differing: float

    @property
    def excess(self) -> float:
        """The larger of the two, in units of what is allowed: above 1 fails."""
        return max(self.error / ERROR_FACTOR, self.scale / SCALE_FACTOR)


def ratio(port: float, original: float) -> float:
    """An error in units of the original's; 1 where both are exact."""
    if original > 0:
        return port / original
    return 1.0 if port == 0 else float("inf")


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def record(low: Any, exact: Any, tokens: list[int], path: Path) -> None:
    """Write inputs, outputs and exact outputs of the modules of the bfloat16 model ``low`` to ``path``.

    ``exact`` is the same model in float32. Arrays are ``[rows, width]`` in float32, in the order in which modules
    finish.
    """
    import torch

    calls: dict[str, tuple[Any, Any]] = {}
    room = MOST_VALUES

    def hook(name: str) -> Any:
        def keep(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            nonlocal room
            single = len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor)
            result = _first(output)
            if single and args[0].is_floating_point() and isinstance(result, torch.Tensor) and name not in calls:
                room -= args[0].numel() + 2 * result.numel()
                if room > 0:
                    calls[name] = (args[0].detach().clone(), result.detach().clone())

        return keep

    handles = [
        module.register_forward_hook(hook(name), with_kwargs=True)
        for name, module in low.named_modules()
        if name and next(module.parameters(), None) is not None
    ]
    arrays: dict[str, np.ndarray] = {}
    with torch.inference_mode():
        low(torch.tensor([tokens]), use_cache=False)
        for handle in handles:
            handle.remove()
        for place, (name, (given, result)) in enumerate(calls.items()):
            truth = _first(exact.get_submodule(name)(given.float()))
            for part, value in (("input", given), ("output", result), ("exact", truth)):
                arrays[f"{place:05d}|{part}|{name}"] = value.float().reshape(-1, value.shape[-1]).numpy()
    np.savez(path, allow_pickle=False, **arrays)


def _stored(path: str) -> dict[str, dict[str, np.ndarray]]:
    modules: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as stored:
        for key in sorted(stored.files):
            _, part, name = key.split("|", 2)
            modules.setdefault(name, {})[part] = stored[key]
    return modules


def _with_fused(
    modules: Mapping[str, dict[str, np.ndarray]], packed: Mapping[str, list[str]]
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    yield from modules.items()
    for fused, parts in packed.items():
        for name in modules:
            parent, _, leaf = name.rpartition(".")
            names = [f"{parent}.{part}" for part in parts]
            if leaf == parts[0] and fused != leaf and all(part in modules for part in names):
                sides = {
                    side: np.concatenate([modules[part][side] for part in names], axis=-1)
                    for side in ("output", "exact")
                }
                yield f"{parent}.{fused}", {"input": modules[name]["input"], **sides}


def measure(model: Any, path: str) -> dict[str, list[float]]:
    """In a worker: run the port's modules on the inputs stored at ``path``.

    Module name -> for port and original the sum of absolute errors of values, for port and original the sum of those of
    the scale of rows, the count of differing values, the count of values. A module that is not there, has another shape
    or cannot run alone is left out.
    """
    import torch

    found: dict[str, list[float]] = {}
    packed = getattr(type(model), "packed_modules_mapping", None) or {}
    for name, values in _with_fused(_stored(path), packed):
        try:
            module = model.get_submodule(name)
            weight = next(module.parameters())
            given = torch.from_numpy(values["input"]).to(weight.device, torch.bfloat16)
            with torch.inference_mode():
                result = _first(module(given)).float().cpu().numpy()
        except Exception:
            continue
        if result.shape != values["exact"].shape:
            continue
        original, exact = values["output"], values["exact"]
        found[name] = [
            float(np.abs(result - exact).sum()),
            float(np.abs(original - exact).sum()),
            _scale_error(result, exact),
            _scale_error(original, exact),
            float((result != original).sum()),
            float(result.size),
        ]
    return found


def _scale_error(values: np.ndarray, exact: np.ndarray) -> float:
    """How far rows are from the exact ones along them, summed over rows."""
    size = np.maximum((exact * exact).sum(axis=-1), np.finfo(np.float32).tiny)
    return float(np.abs((values * exact).sum(axis=-1) / size - 1).sum())


def summarize(found: Mapping[str, list[float]]) -> list[Rounding]:
    """The measurements of all layers put together, the worst first."""
    sums: dict[str, np.ndarray] = {}
    for name, numbers in found.items():
        kind = re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)
        sums[kind] = sums.get(kind, np.zeros(6)) + np.array(numbers)
    rows = [
        Rounding(kind, ratio(port, original), ratio(port_scale, original_scale), differing / count)
        for kind, (port, original, port_scale, original_scale, differing, count) in (
            (kind, numbers.tolist()) for kind, numbers in sums.items()
        )
    ]
    return sorted(rows, key=lambda row: (-row.excess, row.module))
