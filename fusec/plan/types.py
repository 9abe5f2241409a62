"""The parallel plan, as facts: what is split, what is replicated, which sizes can work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sharding = Literal["qkv", "column", "row", "vocab", "replicated"]


@dataclass(frozen=True)
class Placement:
    """How one weight-bearing module of the port is laid out over tensor-parallel ranks.

    ``module`` is its path with the layer index as ``*``; ``axis`` names the split axis
    (``heads``, ``intermediate``, ``vocab``); ``parts`` are the checkpoint modules fused
    into it, in shard order (itself alone where nothing was fused).
    """

    module: str
    sharding: Sharding
    axis: str | None
    parts: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True)
class ParallelPlan:
    """``tp_sizes``: the tensor-parallel sizes up to 64 that can work for this config;
    ``tp_limits``: one sentence for each rule that excludes sizes; ``pp_max``: the largest
    number of pipeline stages (one layer each)."""

    placements: tuple[Placement, ...]
    tp_sizes: tuple[int, ...]
    tp_limits: tuple[str, ...]
    pp_max: int


@dataclass(frozen=True)
class FoldedCheck:
    """A config-driven decision that the port took once and for all.

    ``expression`` is Python over ``config``; the port fits a checkpoint only if it
    evaluates to ``value`` there. ``reason`` says what was folded, for people.
    """

    expression: str
    value: bool | int | float | str | None
    reason: str
