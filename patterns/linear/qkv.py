"""Separate query, key and value projections of one input become one fused projection.

The engine's layer splits whole heads over the ranks and repeats kv heads where there are
more ranks than kv heads. Each projection must give its heads in order.

Example input:

    queries = self.q_proj(hidden_states).view(batch, length, -1, self.head_dim)
    keys = self.k_proj(hidden_states).view(batch, length, -1, self.head_dim)
    values = self.v_proj(hidden_states).view(batch, length, -1, self.head_dim)

Example output:

    qkv, _ = self.qkv_proj(hidden_states)
    queries, keys, values = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
"""

from __future__ import annotations

import numpy as np

from fusec.diagnostics import refuse
from fusec.graph.values import plain
from fusec.match.sites import place_of, rows, sites
from fusec.match.text import argument_text, attribute_of, fused_name, size_text
from fusec.match.unit import Assign, Layout, Stacked, Unit


def reference(x, q_weight, k_weight, v_weight):
    """Three projections of one input; ``x``: (..., hidden)."""
    return F.linear(x, q_weight), F.linear(x, k_weight), F.linear(x, v_weight)


TRIALS = (
    {"x": (7, 64), "q_weight": (128, 64), "k_weight": (64, 64), "v_weight": (64, 64)},
    {"x": (3, 96), "q_weight": (96, 96), "k_weight": (32, 96), "v_weight": (32, 96)},
)


def engine(layers, x, q_weight, k_weight, v_weight):
    head = 32
    sizes = [len(w) for w in (q_weight, k_weight, v_weight)]
    qkv_proj = layers.QKVParallelLinear(x.shape[-1], head, sizes[0] // head, sizes[1] // head, bias=False)
    for shard, weight in zip("qkv", (q_weight, k_weight, v_weight), strict=True):
        qkv_proj.weight_loader(qkv_proj.weight, weight, shard)
    qkv, _ = layers.loaded(qkv_proj)(x)
    return qkv.split(sizes, dim=-1)


def find(ctx, matches, pattern):
    """The projections of each attention call."""
    for site in sites(ctx, matches):
        operands = (site.query, site.key, site.value)
        nodes = [o.projection for o in operands]
        owner = site.frame.module
        layers = [n.args.get("module") for n in nodes]
        attrs = tuple(attribute_of(owner, layer) for layer in layers)
        if len({id(n) for n in nodes}) != 3 or None in attrs:
            raise refuse(
                "FUS401",
                "Query, key and value do not come from three projections of this module.",
                place_of(site.node),
                "A packed projection needs a pattern that knows its row order.",
            )
        inputs = {id(ctx.base(n.args["input"])) for n in nodes}
        if len(inputs) != 1:
            raise refuse("FUS401", "Query, key and value are projected from different inputs.", place_of(site.node))
        for operand, node in zip(operands, nodes, strict=True):
            found = rows(ctx, operand)
            if not (found.reshape(-1) == np.arange(found.size)).all() or found.size != node.outputs[0].shape[-1].value:
                raise refuse("FUS401", "This projection's rows are not whole heads in order.", place_of(node))
        biases = [plain(layer.ctor.arguments["bias"]) for layer in layers]
        if len({bool(b) for b in biases}) != 1:
            raise refuse(
                "FUS401",
                "Only some of query, key and value have a bias, which the fused layer cannot express.",
                place_of(site.node),
            )
        q, k, v = (o.tensor.shape for o in operands)
        if not k[1].value == v[1].value or not q[3].value == k[3].value == v[3].value:
            raise refuse("FUS401", "Key and value differ in their heads, or heads differ in size.", place_of(site.node))
        name = fused_name(attrs)
        head = size_text(owner, q[3])
        bias = dict.fromkeys(argument_text(owner, layer, "bias") for layer in layers)
        if len(bias) != 1:
            raise refuse(
                "FUS401", "The biases of query, key and value follow different config keys.", place_of(site.node)
            )
        hidden = argument_text(owner, layers[0], "in_features")
        text = (
            f"QKVParallelLinear({hidden}, {head}, {total(q[1])}, {total(k[1])}, "
            f'bias={next(iter(bias))}, quant_config=quant_config, prefix=f"{{prefix}}.{name}")'
        )
        expects = (
            ("arg0", nodes[0].args["input"].shape[-1].value),
            ("arg1", q[3].value),
            ("arg2", q[1].value),
            ("arg3", k[1].value),
            ("bias", bool(biases[0])),
        )
        setup = [Assign(name, text, attrs, ("quant_config", "prefix"), expects=expects)]
        if head != "self.head_dim":
            setup.insert(0, Assign("head_dim", head))
        setup += [
            Assign("num_heads", f"self.{name}.num_heads", ("num_heads",)),
            Assign("num_kv_heads", f"self.{name}.num_kv_heads", ("num_kv_heads",)),
            Assign("q_size", "self.num_heads * self.head_dim"),
            Assign("kv_size", "self.num_kv_heads * self.head_dim"),
        ]
        yield Unit(
            pattern.name,
            site.frame,
            frozenset(n.id for n in nodes),
            (nodes[0].args["input"],),
            tuple(n.outputs[0] for n in nodes),
            (
                f"{{tmp0}}, _ = self.{name}({{in0}})",
                "{out0}, {out1}, {out2} = {tmp0}.split([self.q_size, self.kv_size, self.kv_size], dim=-1)",
            ),
            hints=("query", "key", "value"),
            tmps=("qkv",),
            init=tuple(setup),
            drops=attrs,
            stacked=tuple(Stacked(a, name, s) for a, s in zip(attrs, "qkv", strict=True)),
            layouts=(Layout(name, "qkv", "heads", attrs, (q[1].value, k[1].value), (total(q[1]), total(k[1]))),),
            symbols=("QKVParallelLinear",),
            what=f"{', '.join(attrs)} fused into {name}",
        )


def total(size):
    """The head count of the whole model, over the config."""
    return " * ".join(size.atoms) if size.atoms else str(size.value)
