"""Compares distributions over tokens: the largest difference and where it is, and mean divergences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FLOAT32_BAR = 1e-4
# The bar in float32 where the original differs from itself (eager to sdpa attention) by more than a third of the above.
OWN_DIFFERENCE_FACTOR = 3.0
DIVERGENCE_FACTOR = 1.5


@dataclass(frozen=True)
class Run:
    """One sequence as one model saw it.

    ``logprobs`` is ``[prompt - 1 + new, vocabulary]``: row i is the distribution of token i + 1; ``tokens`` are the
    ``new`` tokens generated greedily.
    """

    prompt: int
    logprobs: np.ndarray
    tokens: tuple[int, ...]

    def place(self, row: int) -> str:
        """Where a row is, for people: positions count from 0 and are those of the token predicted from."""
        if row < self.prompt - 1:
            return f"prompt position {row} of {self.prompt}"
        return f"decode step {row - self.prompt + 1} (position {row})"


@dataclass(frozen=True)
class Difference:
    """The largest difference of two sets of runs, and where; ``token_problem`` is set where greedy tokens part
    although the original's margin between them is wider than the bar allows."""

    largest: float
    where: str
    token_problem: str | None = None
    tokens_agree: bool = True


def _common(reference: Run, port: Run) -> int:
    """How many generated tokens agree before the first that does not."""
    count = 0
    for left, right in zip(reference.tokens, port.tokens, strict=False):
        if left != right:
            break
        count += 1
    return count


def comparable(reference: Run, port: Run) -> int:
    """How many leading rows of two runs condition on the same tokens."""
    return min(len(reference.logprobs), len(port.logprobs), reference.prompt + _common(reference, port))


def _gaps(reference: np.ndarray, port: np.ndarray) -> np.ndarray:
    """Absolute differences; equal infinities do not differ, and a NaN on one side differs infinitely."""
    with np.errstate(invalid="ignore"):
        gaps = np.abs(reference - port)
    gaps = np.where(reference == port, 0.0, gaps)
    return np.where(np.isnan(gaps), np.inf, gaps)


def difference(reference: list[Run], port: list[Run], bar: float, names: Sequence[int]) -> Difference:
    """The largest absolute difference of log-probabilities over the rows that condition on the same tokens.

    ``names`` are the numbers by which the report calls the sequences.

    Greedy tokens may part only where the original itself nearly ties: its margin between the two tokens is at most
    twice the bar, which is what two values that are each within the bar can turn around.
    """
    largest, where, problem, agree = 0.0, "", None, True
    for index, left, right in zip(names, reference, port, strict=True):
        rows = comparable(left, right)
        if rows < left.prompt:
            return Difference(np.inf, f"sequence {index}: only {rows} of {left.prompt} rows came back")
        gaps = _gaps(left.logprobs[:rows], right.logprobs[:rows]).max(axis=-1)
        row = int(gaps.argmax())
        if gaps[row] > largest or not where:
            largest, where = float(gaps[row]), f"sequence {index}, {left.place(row)}"
        step = _common(left, right)
        if step < len(left.tokens):
            agree = False
            mine, theirs = left.tokens[step], right.tokens[step] if step < len(right.tokens) else None
            distribution = left.logprobs[left.prompt - 1 + step]
            margin = np.inf if theirs is None else float(distribution[mine] - distribution[theirs])
            if margin > 2 * bar and problem is None:
                problem = (
                    f"sequence {index}, decode step {step}: token {theirs} instead of {mine}, "
                    f"which the original prefers by {margin:.3g}"
                )
    return Difference(largest, where, problem, agree)


def mean_divergence(reference: list[Run], port: list[Run], names: Sequence[int]) -> tuple[float, str]:
    """Mean KL divergence from the reference over the comparable rows, and where the largest single one is."""
    values: list[float] = []
    worst, where = -1.0, ""
    for index, left, right in zip(names, reference, port, strict=True):
        rows = comparable(left, right)
        ours = left.logprobs[:rows].astype(np.float64)
        theirs = right.logprobs[:rows].astype(np.float64)
        with np.errstate(invalid="ignore"):
            terms = np.where(np.isneginf(ours), 0.0, np.exp(ours) * (ours - theirs))
        divergences = np.where(np.isnan(terms), np.inf, terms).sum(axis=-1)
        values += divergences.tolist()
        row = int(divergences.argmax())
        if divergences[row] > worst:
            worst, where = float(divergences[row]), f"sequence {index}, {left.place(row)}"
    return float(np.mean(values)), where


# An original that is further than this from itself is no reference: part of it was never filled, say.
LARGEST_OWN_DIFFERENCE = 1e-2


def float32_bar(own_difference: float) -> float:
    """The bar in float32, given how far the original's eager and sdpa attention are apart on the same inputs."""
    return max(FLOAT32_BAR, OWN_DIFFERENCE_FACTOR * own_difference)
