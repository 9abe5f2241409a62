"""Rotary position embedding of query and key, in any spelling.

The source's rotation is recognised by value: its traced graph is run on random vectors at
several positions and compared with the two pairings that the engine knows. Its
frequencies must be those of the config's rope type, and the port builds the same table.

Example input:

    cos, sin = (table.unsqueeze(1) for table in position_embeddings)
    queries, keys = turn(queries, cos, sin), turn(keys, cos, sin)

Example output:

    queries, keys = self.rotary_emb(positions, queries, keys)
"""

from __future__ import annotations

import numpy as np

from fusec.diagnostics import refuse
from fusec.graph.axes import BATCH, SEQ, constant
from fusec.graph.tracer import ROPE_SCALE
from fusec.graph.values import Sym
from fusec.match.sites import place_of, sites
from fusec.match.text import attribute_of, size_text
from fusec.match.unit import Assign, Unit
from fusec.plan.types import FoldedCheck


def reference(x, cos, sin):
    """Half-split pairing. ``x``: (..., width); ``cos``, ``sin``: (..., width / 2) of the same position."""
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


TRIALS = (
    {"x": (9, 4, 32), "cos": (9, 1, 16), "sin": (9, 1, 16)},
    {"x": (5, 1, 64), "cos": (5, 1, 32), "sin": (5, 1, 32)},
)


def engine(layers, x, cos, sin):
    # Any table will do: which numbers stand in it is the rope type's business.
    tokens, _, width = x.shape
    rotary = layers.RotaryEmbedding(width, width, tokens, 10000.0, True, x.dtype, init_cache=False)
    rotary.register_buffer("cos_sin_cache", torch.cat((cos, sin), dim=-1).squeeze(1), persistent=False)
    query, key = rotary(torch.arange(tokens), x.flatten(-2), x[:, :1].flatten(-2).clone())
    assert torch.equal(key, query[:, :width])
    return query.view(x.shape)


def find(ctx, matches, pattern):
    """The rotations of each attention call: query and key together."""
    confirmed = {}
    for site in sites(ctx, matches):
        q, k = site.query.rotation, site.key.rotation
        if site.value.rotation is not None:
            raise refuse(
                "FUS401",
                "The value is rotated by position, which the engine's attention cannot express.",
                place_of(site.node),
            )
        if q is None and k is None:
            continue
        if q is None or k is None:
            raise refuse("FUS401", "Only one of query and key is rotated by position.", place_of(site.node))
        key = tuple(
            (ctx.signature(r.nodes), tuple(id(ctx.raw_base(t)) for t in r.tables), ctx.shape(r.input)) for r in (q, k)
        )
        if key not in confirmed:
            first, second = confirm(ctx, q, site), confirm(ctx, k, site)
            if first != second:
                raise refuse("FUS404", "Query and key are rotated in different ways.", place_of(site.node))
            check_type(ctx, matches, q, site)
            confirmed[key] = first
            absorb(ctx, matches, pattern, q)
        neox, width = confirmed[key]
        owner = site.frame
        head_size = site.query.tensor.shape[-1]
        arguments = [f"config, {size_text(owner.module, head_size)}"]
        expects = [("arg1", head_size.value)]
        if not width.same(head_size):
            arguments.append(f"rotary_dim={size_text(owner.module, width)}")
            expects.append(("rotary_dim", width.value))
        if not neox:
            arguments.append("is_neox_style=False")
        yield Unit(
            pattern.name,
            owner,
            q.nodes | k.nodes,
            (ctx.raw_base(q.input), ctx.raw_base(k.input)),
            (q.output, k.output),
            ("{out0}, {out1} = self.rotary_emb(positions, {in0}, {in1})",),
            hints=("query", "key"),
            init=(
                Assign(
                    "rotary_emb",
                    f"get_rotary({', '.join(arguments)})",
                    last=True,
                    expects=tuple(expects),
                ),
            ),
            symbols=("get_rotary",),
            needs_positions=True,
            what=f"rotary embedding, {'half-split' if neox else 'interleaved'} pairs over {width.value} elements",
        )


def confirm(ctx, rotation, site):
    """(half-split pairing?, rotated width as a size). Raises FUS404 where the graph computes neither pairing."""
    place = place_of(rotation.output.node) or place_of(site.node)
    angles = [n for n in upstream_nodes(ctx, rotation.tables) if n.op in ("cos", "sin")]
    stop = [t for n in angles for t in n.outputs]
    if not angles or ctx.graph.positions.node.id in ctx.upstream(rotation.tables, stop):
        raise refuse(
            "FUS404",
            "Query or key is mixed with a function of the position that is no rotation.",
            place,
            "A scale that depends on the position needs a pattern of its own.",
        )
    rng = np.random.default_rng(0)
    shape = ctx.shape(rotation.input)
    # far apart, so that nothing that sets in late is taken for a plain rotation
    positions = np.array([[3, 11, 0, 70, 1], [2, 5003, 131072, 1, 1000003]])
    given = {id(ctx.graph.positions): positions}
    tables = [n for n in upstream_nodes(ctx, rotation.tables) if n.op == "rope_init"]
    for n in tables:
        out = n.outputs[0]
        given[id(out)] = np.sort(rng.uniform(0.01, 1.0, ctx.shape(out)))[::-1]
    angle = ctx.evaluate(angles[0].args["input"], given)
    frequencies = (angle[0, 0] / positions[0, 0]).reshape(-1)
    x = rng.standard_normal(shape)
    got = ctx.evaluate(rotation.output, {**given, id(rotation.input): x})
    seq_axis = next((i for i, s in enumerate(rotation.input.shape) if SEQ in s.atoms), None)
    if seq_axis is None or BATCH not in rotation.input.shape[0].atoms:
        raise refuse("FUS404", "What is rotated by position has no axis of its own for batch and sequence.", place)
    for neox in (True, False):
        for width, size in candidate_widths(angles[0].args["input"].shape[-1], rotation.input.shape[-1]):
            unique = distinct(frequencies, width)
            if unique is None:
                continue
            expected = rotate(x, positions, unique, width, neox, seq_axis, ROPE_SCALE if tables else 1.0)
            if expected.shape == got.shape and np.allclose(expected, got, rtol=1e-9, atol=1e-9):
                check_frequencies(ctx, unique, width, [given[id(n.outputs[0])] for n in tables], place)
                return neox, size
    raise refuse(
        "FUS404",
        "This rotation is neither the half-split nor the interleaved pairing of a rotary embedding.",
        place,
        "The engine's rotary kernels know those two; another pairing needs a pattern.",
    )


def check_type(ctx, matches, rotation, site):
    """The port's table follows the rope type. A source that never asks for it has the plain table for
    every config; one that takes the types' own tables must also update them as transformers does."""
    nodes = upstream_nodes(ctx, rotation.tables)
    for n in nodes:
        if n.op == "rope_init":
            kind = n.args["rope_type"]
            if type(kind) is not Sym or "rope_type" not in kind.expr:
                raise refuse("FUS404", "The table is of a rope type that the config does not name.", place_of(n))
    if any(n.op == "rope_init" for n in nodes):
        frames = [n.frame for n in nodes if n.op in ("cos", "sin")]
        if not any("dynamic_rope_update" in d for f in frames if f.func is not None for d in f.func.decorators):
            raise refuse(
                "FUS404",
                "The rotary embedding takes the rope types' own tables, but never updates them for long sequences.",
                place_of(rotation.output.node) or place_of(site.node),
            )
    elif not any("rope_type" in g.expr for g in ctx.graph.guards):
        parameters = ctx.graph.config.get("rope_parameters") or {}
        matches.checks.append(
            FoldedCheck(
                "config.rope_parameters['rope_type']",
                parameters.get("rope_type"),
                "the source computes the plain rotary table whatever the rope type",
            )
        )


def upstream_nodes(ctx, tensors):
    ids = ctx.upstream(tensors)
    return [n for n in ctx.graph.nodes if n.id in ids]


def candidate_widths(table, head):
    """Widths that a table of that size can turn, with what they are made of; a table may list each angle twice."""
    sizes = (table, table * constant(2))
    return [(s.value, head if s.value == head.value and s.same(head) else s) for s in sizes if s.value <= head.value]


def distinct(frequencies, width):
    """The width / 2 frequencies behind a table that may list each one twice, in either order."""
    half = width // 2
    if len(frequencies) == half:
        return frequencies
    if len(frequencies) == width:
        if np.allclose(frequencies[:half], frequencies[half:]):
            return frequencies[:half]
        if np.allclose(frequencies[::2], frequencies[1::2]):
            return frequencies[::2]
    return None


def rotate(x, positions, frequencies, width, neox, seq_axis, scale):
    angle = positions[:, :, None] * frequencies
    shape = [1] * x.ndim
    shape[0], shape[seq_axis], shape[-1] = positions.shape[0], positions.shape[1], len(frequencies)
    cos, sin = np.cos(angle).reshape(shape) * scale, np.sin(angle).reshape(shape) * scale
    part, rest = x[..., :width], x[..., width:]
    if neox:
        a, b = part[..., : width // 2], part[..., width // 2 :]
        turned = np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)
    else:
        a, b = part[..., ::2], part[..., 1::2]
        turned = np.stack((a * cos - b * sin, b * cos + a * sin), axis=-1).reshape(part.shape)
    return np.concatenate((turned, rest), axis=-1)


def check_frequencies(ctx, frequencies, width, opaque, place):
    """The plain table must be theta^(-2i/width) for the config's theta; that of a rope type must be used as it is."""
    if opaque:
        if (
            len(opaque) != 1
            or frequencies.shape != opaque[0].shape
            or not np.allclose(frequencies, opaque[0], rtol=1e-12)
        ):
            raise refuse("FUS404", "The rotation does not use the table of its rope type as it is.", place)
        return
    parameters = ctx.graph.config.get("rope_parameters", {})
    theta = (parameters or {}).get("rope_theta")
    if theta is None or not np.allclose(frequencies, 1.0 / theta ** (np.arange(0, width, 2) / width), rtol=1e-6):
        raise refuse("FUS404", "The rotary frequencies are not those of the config's rope_theta.", place)


def absorb(ctx, matches, pattern, rotation):
    """The port's table follows ``rope_parameters`` at run time: what the source's rotary
    module branches on there is answered by this pattern, and its class is gone."""
    for node in upstream_nodes(ctx, rotation.tables):
        module = ctx.owner(node).module
        if module is not None and attribute_of_any(ctx, module):
            matches.replaced[id(module)] = pattern.name


def attribute_of_any(ctx, module):
    return any(attribute_of(m, module) for m in ctx.graph.modules())
