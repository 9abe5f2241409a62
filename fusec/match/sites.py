"""Attention sites: how the three inputs of an attention call come about.

Walks from the operand of an ``attention`` node back to the projection that made it and
names what stands between: a normalisation, a rotation by position. The walk looks
through layout; :func:`rows` then says by index which projection row ends up at which
(head, element).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusec.diagnostics import Place, refuse
from fusec.graph.axes import BATCH, SEQ
from fusec.graph.ops import OPS
from fusec.graph.values import CallFrame, Node, Tensor
from fusec.match.context import Context
from fusec.match.unit import Matches, Norm


@dataclass(frozen=True)
class Rotation:
    """A region that mixes a value with tables computed from positions.

    ``input`` has the layout of ``output``; ``nodes`` lie between them; ``tables`` are the
    position-only tensors that enter."""

    input: Tensor
    output: Tensor
    nodes: frozenset[int]
    tables: tuple[Tensor, ...]


@dataclass(frozen=True)
class Operand:
    """One input of an attention call, ``tensor`` of shape (batch, heads, seq, head_dim)."""

    tensor: Tensor
    projection: Node
    norm: Norm | None
    rotation: Rotation | None
    nodes: frozenset[int]
    """Layout nodes between the projection and the call, and the rotation's."""


@dataclass(frozen=True)
class Site:
    """An attention call with its operands."""

    node: Node
    frame: CallFrame
    query: Operand
    key: Operand
    value: Operand


def place_of(node: Node) -> Place | None:
    """Where a node stands in the source."""
    span = node.span or (node.frame.span if node.frame is not None else None)
    return Place(span.file, span.line, span.col + 1) if span is not None else None


def sites(ctx: Context, matches: Matches) -> list[Site]:
    """All attention sites, found once. Raises FusecError FUS405 where an operand cannot be followed."""
    known = matches.sites
    if known is not None and matches.sites_norms == len(matches.norms):
        return known
    out = []
    for node in ctx.graph.nodes:
        if node.op == "attention":
            operands = [operand(ctx, matches, node.args[name], name, node) for name in ("query", "key", "value")]
            out.append(Site(node, ctx.owner(node), *operands))
    matches.sites, matches.sites_norms = out, len(matches.norms)
    return out


def operand(ctx: Context, matches: Matches, tensor: Tensor, name: str, call: Node) -> Operand:
    nodes: set[int] = set()
    rotation: Rotation | None = None
    norm: Norm | None = None
    current = tensor
    for _ in range(8):
        base = ctx.raw_base(current)
        nodes |= ctx.upstream([current], [base])
        if id(base) in matches.norm_outputs and norm is None:
            norm = matches.norm_outputs[id(base)]
            current = norm.input
            continue
        if base.node.op == "linear":
            return Operand(tensor, base.node, norm, rotation, frozenset(nodes))
        if rotation is None and (found := _rotation(ctx, matches, base)) is not None:
            rotation = found
            nodes |= found.nodes
            current = found.input
            continue
        break
    raise refuse(
        "FUS405",
        f"The {name} of the attention call comes from {base.node.op!r}, which no pattern for projections covers.",
        place_of(base.node) or place_of(call),
        "It must come from a linear layer, through layout changes, a norm and a rotary embedding at most.",
    )


def _rotation(ctx: Context, matches: Matches, output: Tensor) -> Rotation | None:
    """The region from ``output`` back to the value that position tables are mixed with."""
    region: set[int] = set()
    tables: dict[int, Tensor] = {}
    starts: dict[int, Tensor] = {}
    stack = [output]
    while stack:
        t = stack.pop()
        if t.node.id in region:
            continue
        if not ctx.from_tokens(t):
            if ctx.from_positions(t):
                tables[id(t)] = t
            continue
        if (
            t.node.op == "linear"
            or id(t) in matches.norm_outputs
            or OPS[t.node.op].kind not in ("layout", "pointwise", "cast")
        ):
            starts[id(t)] = t
            continue
        region.add(t.node.id)
        stack.extend(t.node.tensors())
    if not tables or len(starts) != 1:
        return None
    (start,) = starts.values()
    mixed = [n for n in ctx.graph.nodes if n.id in region and any(id(t) in tables for t in n.tensors())]
    for node in mixed:
        for t in node.tensors():
            if id(t) not in tables:
                whole = _whole(ctx, t, start)
                if whole is not None:
                    inner = ctx.upstream([output], [whole, *tables.values()])
                    return Rotation(whole, output, frozenset(inner), tuple(tables.values()))
    return None


def _whole(ctx: Context, t: Tensor, start: Tensor) -> Tensor | None:
    """Climb from an operand of the mixing to the value that holds all elements of ``start``."""
    total = int(np.prod(ctx.shape(start)))
    while True:
        if int(np.prod(ctx.shape(t))) == total and ctx.raw_base(t) is start:
            return t
        if OPS[t.node.op].kind not in ("layout", "cast") or t.node.op in ("cat", "stack"):
            return None
        t = t.node.args["input"]


def rows(ctx: Context, op: Operand) -> Any:
    """Which projection row stands at (head, element): an int array (heads, head_dim).

    Raises FusecError FUS405 where tokens are mixed or the operand is not laid out as
    (batch, heads, seq, head_dim)."""
    target = op.tensor
    shape = target.shape
    place = place_of(target.node) or place_of(op.projection)
    if len(shape) != 4 or BATCH not in shape[0].atoms or SEQ not in shape[2].atoms:
        raise refuse(
            "FUS405",
            "An input of the attention call is not laid out as (batch, heads, seq, head_dim): "
            f"[{', '.join(map(str, shape))}].",
            place,
        )
    # segments between opaque steps, from the call back to the projection
    covered = op.nodes - (op.rotation.nodes if op.rotation is not None else frozenset())
    key = (ctx.signature(covered), ctx.shape(op.projection.outputs[0]), ctx.shape(target))
    if key in ctx.row_cache:
        return ctx.row_cache[key]
    index: Any = None
    current = target
    for stop, resume in _segments(op):
        size = int(np.prod(ctx.shape(stop)))
        array = np.arange(size).reshape(ctx.shape(stop))
        moved = ctx.evaluate(current, {id(stop): array})
        index = moved if index is None else moved.reshape(-1)[index]
        current = resume
    features = op.projection.outputs[0].shape[-1].value
    tokens, row = np.divmod(index, features)
    b, _, s, _ = index.shape
    expected = np.arange(b * s).reshape(b, 1, s, 1)
    if not (tokens == expected).all() or not (row == row[:1, :, :1, :]).all():
        raise refuse("FUS405", "The layout of this attention input mixes tokens.", place)
    ctx.row_cache[key] = row[0, :, 0, :]
    return row[0, :, 0, :]


def _segments(op: Operand) -> list[tuple[Tensor, Tensor]]:
    """(start of a layout-only segment, where the one before it ends), from the call backwards."""
    out: list[tuple[Tensor, Tensor]] = []
    if op.rotation is not None:
        out.append((op.rotation.output, op.rotation.input))
    if op.norm is not None:
        out.append((op.norm.output, op.norm.input))
    out.append((op.projection.outputs[0], op.projection.outputs[0]))
    return out
