"""Records what every module of a model computes, and names the first that differs between two models.

Runs in the process that has the model; the comparison needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

# Relative to the largest value of the module (at least 1): ten times what float32 in another order of sums gives.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Divergence:
    """The first module, in the order in which the original's modules finish, whose values differ.

    ``side`` is ``input`` or ``output``; ``difference`` is absolute; ``compared`` counts the places compared.
    """

    module: str | None
    side: str
    difference: float
    compared: int

    def __str__(self) -> str:
        if self.compared == 0:
            return "no module has the same name in both"
        if self.module is None:
            return (
                f"all {self.compared} places that can be compared agree to {TOLERANCE:.0e} of their largest value: "
                "the difference is after them, on the way from the last hidden state to the logits, or no larger"
            )
        return f"the first module that differs is {self.module} (its {self.side}, by {self.difference:.3g})"


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, (tuple, list)):
        return [item for item in value if isinstance(item, torch.Tensor) and item.is_floating_point()]
    return []


def _rows(tensor: Any, tokens: int) -> np.ndarray | None:
    """Values as ``[tokens, ...]`` flattened per token, or ``None`` where tokens are not an axis of it.

    The original's axes are (batch of one, tokens, ...), (tokens, batch of one, ...) or (batch of one, heads, tokens,
    head_dim); the port's are (tokens, ...) or (tokens * heads, head_dim).
    """
    shape = tuple(tensor.shape)
    if len(shape) == 4 and shape[0] == 1 and shape[1] != tokens and shape[2] == tokens:
        tensor = tensor.transpose(1, 2)
    if tensor.numel() % tokens or (1 not in shape[:1] and shape and shape[0] % tokens):
        return None
    return np.asarray(tensor.detach().float().cpu().reshape(tokens, -1).numpy()).copy()


class Recorder:
    """``values``: ``module:input`` or ``module:output`` -> one array, or two where the second is a residual stream
    that travels beside the first, each ``[tokens, width]``; in the order in which modules finish."""

    def __init__(self, model: Any, tokens: int) -> None:
        self.values: dict[str, list[np.ndarray]] = {}
        self.tokens = tokens
        self.handles = [
            module.register_forward_hook(self._hook(name), with_kwargs=True)
            for name, module in model.named_modules()
            # One of the same name but without weights (an activation) may stand for more in the other model.
            if name and next(module.parameters(), None) is not None
        ]

    def _hook(self, name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            inputs = _tensors(args) or _tensors(list(kwargs.values()))
            if len(inputs) == 1 and not any(True for _ in module.children()):
                self._keep(f"{name}:input", inputs)
            self._keep(f"{name}:output", _tensors(output)[:2])

        return hook

    def _keep(self, key: str, tensors: list[Any]) -> None:
        arrays = [array for array in (_rows(tensor, self.tokens) for tensor in tensors) if array is not None]
        if arrays and key not in self.values:
            self.values[key] = arrays

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


@contextmanager
def recording(model: Any, tokens: int) -> Iterator[Recorder]:
    """Record every module of ``model`` while the body runs one forward over ``tokens`` tokens."""
    recorder = Recorder(model, tokens)
    try:
        yield recorder
    finally:
        recorder.remove()


def _candidates(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What a module's result may stand for: itself, or the sum with the residual stream beside it."""
    if len(arrays) == 2 and arrays[0].shape == arrays[1].shape:
        return [arrays[0], arrays[0] + arrays[1]]
    return arrays[:1]


def _with_fused(
    reference: Mapping[str, list[np.ndarray]], packed: Mapping[str, list[str]]
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The reference's places, and after the last part of each fused module that module, put together from its parts."""
    last_parts = {parts[-1]: (fused, parts) for fused, parts in packed.items()}
    for key, arrays in reference.items():
        yield key, arrays
        name, _, side = key.rpartition(":")
        parent, _, leaf = name.rpartition(".")
        if side == "output" and leaf in last_parts:
            fused, parts = last_parts[leaf]
            keys = [f"{parent}.{part}:output" for part in parts]
            if fused != leaf and all(part in reference for part in keys):
                yield f"{parent}.{fused}:output", [np.concatenate([reference[part][0] for part in keys], axis=-1)]


def first_divergence(
    reference: Mapping[str, list[np.ndarray]],
    port: Mapping[str, list[np.ndarray]],
    packed: Mapping[str, list[str]],
    tolerance: float = TOLERANCE,
) -> Divergence:
    """Name the first place, in the reference's order, where the two recordings differ.

    ``packed`` is the port's map from a fused module's name to the names it was made from.
    """
    differing: dict[str, float] = {}
    agreeing: set[str] = set()
    for key, arrays in _with_fused(reference, packed):
        original = arrays[0]
        same = [array for array in _candidates(port.get(key, [])) if array.shape == original.shape]
        if not same:
            continue
        difference = min(np.nan_to_num(np.abs(array - original), nan=np.inf).max(initial=0.0) for array in same)
        if difference > tolerance * max(1.0, float(np.abs(original).max(initial=0.0))):
            differing[key] = float(difference)
        else:
            agreeing.add(key)
    compared = len(differing) + len(agreeing)
    for key, difference in differing.items():
        name, _, side = key.rpartition(":")
        # Within a module whose result agrees, a part is only called the same.
        if not any(f"{outer}:output" in agreeing for outer in _enclosing(name)):
            return Divergence(name, side, difference, compared)
    return Divergence(None, "", 0.0, compared)


def _enclosing(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def save(path: Any, values: Mapping[str, list[np.ndarray]]) -> None:
    """Write a recording as one npz, in order."""
    places = enumerate(values.items())
    arrays = {f"{i:05d}|{j}|{key}": array for i, (key, arrays) in places for j, array in enumerate(arrays)}
    np.savez(path, allow_pickle=False, **arrays)


def load(path: Any) -> dict[str, list[np.ndarray]]:
    """Read what :func:`save` wrote."""
    values: dict[str, list[np.ndarray]] = {}
    with np.load(path) as stored:
        for name in sorted(stored.files):
            values.setdefault(name.split("|", 2)[2], []).append(stored[name])
    return values
