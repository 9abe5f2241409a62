"""What a match says: which nodes it covers, and what stands in the port instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from fusec.graph.tracer import Graph
from fusec.graph.values import CallFrame, Instance, Tensor
from fusec.match.context import Context
from fusec.plan.types import FoldedCheck, Sharding
from fusec.read.types import Source


@dataclass(frozen=True)
class Assign:
    """One attribute that the port's ``__init__`` sets.

    ``text`` is the right-hand side over the names that are in scope there (``config``,
    ``self``, ``prefix``, ``quant_config``, ``cache_config``, the source's own parameters);
    ``replaces`` are the source attributes whose statements make way, the first one giving
    the position; ``needs`` are the extra ``__init__`` parameters that the text uses.
    """

    attr: str
    text: str
    replaces: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    last: bool = False
    """Stands after all that the source sets."""
    expects: tuple[tuple[str, Any], ...] = ()
    """What arguments of the constructor (``arg0``... or by keyword) must come to, as the source has it."""


RANK_ATTRIBUTES = frozenset({"num_heads", "num_kv_heads", "q_size", "kv_size"})
"""Attributes of a ported attention that count what this rank holds, as the engine's models name them."""


@dataclass(frozen=True)
class Stacked:
    """A checkpoint module that loads as one shard of a fused layer."""

    source: str
    target: str
    shard: str | int


@dataclass(frozen=True)
class Layout:
    """The parallel layout of one weight-bearing layer (see plan/types.py)."""

    attr: str
    sharding: Sharding
    axis: str | None
    parts: tuple[str, ...]
    extent: tuple[int, ...] = ()
    """What is dealt out to the ranks: (heads, kv heads) for ``qkv``, (size,) for the others."""
    extent_text: tuple[str, ...] = ()
    """The same as expressions over the config."""
    reason: str = ""


@dataclass(eq=False)
class Unit:
    """One match inside the forward of one module.

    ``covers`` are node ids that it accounts for. ``code`` are the statements of the port,
    templates over ``{in0}``... ``{out0}``... and ``{tmp0}``...; ``hints`` name the outputs
    and ``tmps`` the temporaries where the source has no name for them.
    """

    pattern: str
    frame: CallFrame
    covers: frozenset[int]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    code: tuple[str, ...]
    hints: tuple[str, ...] = ()
    tmps: tuple[str, ...] = ()
    init: tuple[Assign, ...] = ()
    drops: tuple[str, ...] = ()
    """Source attributes of the owner that the port does not have."""
    stacked: tuple[Stacked, ...] = ()
    layouts: tuple[Layout, ...] = ()
    symbols: tuple[str, ...] = ()
    """Engine symbols that ``code`` and ``init`` use, by their names in target/symbols.py."""
    what: str = ""
    """A sentence for the report."""
    needs_positions: bool = False
    call: bool = False
    """It is the call of a submodule that has a port of its own."""


@dataclass(frozen=True)
class Norm:
    """A module call that was recognised as a normalisation over the last axis."""

    frame: CallFrame
    module: Instance
    input: Tensor
    output: Tensor
    weight: Tensor | None
    eps: Any
    pattern: str
    covers: frozenset[int]
    layer: str
    """The engine layer that computes it, by its name in target/symbols.py."""


@dataclass(frozen=True)
class Thread:
    """A decoder layer whose last residual addition is left to the next layer's norm.

    ``input`` is the layer's hidden-state argument, ``branch`` the value that is still to be
    added to the residual stream when the layer returns; ``sums`` are the additions (by id
    of the tensor) that exist only inside the stream."""

    frame: CallFrame
    input: Tensor
    branch: Tensor
    sums: frozenset[int]
    pattern: str


@dataclass(frozen=True)
class Decoder:
    """The model that runs the layers: embedding, loop, final norm.

    ``layers`` is the attribute that holds the layer list; ``embedded`` the value that
    enters the first layer; ``last`` the last layer's result."""

    frame: CallFrame
    embedding: Tensor
    embed_attr: str
    layers: str
    calls: tuple[CallFrame, ...]
    embedded: Tensor
    last: Tensor
    norm: Norm | None
    pattern: str


@dataclass(frozen=True)
class Head:
    """The language-model head: the model call, the projection to the vocabulary, and the result."""

    frame: CallFrame
    model: CallFrame
    model_attr: str
    hidden: Tensor
    linear: Tensor
    head_attr: str
    logits: Tensor
    pattern: str


@dataclass(eq=False)
class Matches:
    """All that the match stage found."""

    norms: dict[int, Norm] = field(default_factory=dict)
    """By id of the module instance."""
    norm_outputs: dict[int, Norm] = field(default_factory=dict)
    """By id of the output tensor."""
    units: dict[int, list[Unit]] = field(default_factory=dict)
    """By id of the owning call frame."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Source class or function -> why the port does not have it."""
    sites: list[Any] | None = None
    """The attention sites, kept by match/sites.py once the norms are known."""
    sites_norms: int = 0
    threads: dict[int, Thread] = field(default_factory=dict)
    """By id of the layer's call frame."""
    checks: list[FoldedCheck] = field(default_factory=list)
    """What a pattern takes for granted of the config, where the source does not ask."""
    decoder: Decoder | None = None
    head: Head | None = None
    replaced: dict[int, str] = field(default_factory=dict)
    """Modules (by id) that have no counterpart in the port, with the pattern that answers for them."""

    def add(self, unit: Unit) -> None:
        self.units.setdefault(unit.frame.id, []).append(unit)

    def of(self, frame: CallFrame) -> list[Unit]:
        return self.units.get(frame.id, [])


Find = Callable[[Context, Matches, "Pattern"], Iterable[Unit]]


@dataclass(frozen=True)
class Pattern:
    """A pattern file: a reference computation and what replaces it.

    ``find`` adds what it recognises to the matches; ``source`` is the file itself, from
    which references are traced.
    """

    name: str
    summary: str
    find: Find
    source: Source
    sha256: str
    order: int = 0


__all__ = ["Assign", "Context", "Find", "Graph", "Layout", "Matches", "Norm", "Pattern", "Stacked", "Unit"]
