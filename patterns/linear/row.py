"""A projection of values that are split over ranks: row-parallel, one all-reduce.

Its bias is added once, by the engine's layer.

Example input:

    return self.o_proj(output.reshape(batch, length, -1)), weights

Example output:

    hidden_states, _ = self.o_proj(output)
    return hidden_states
"""

from __future__ import annotations

import numpy as np

from fusec.diagnostics import refuse
from fusec.match.sites import place_of
from fusec.match.text import argument_text, attribute_of
from fusec.match.unit import Assign, Layout, Unit

ORDER = 10  # after the producers of split values


def reference(x, weight):
    """``x``: (..., features split over ranks)."""
    return F.linear(x, weight)


TRIALS = ({"x": (7, 128), "weight": (64, 128)}, {"x": (1, 7, 32), "weight": (96, 32)})


def engine(layers, x, weight):
    o_proj = layers.RowParallelLinear(x.shape[-1], len(weight), bias=False)
    o_proj.weight_loader(o_proj.weight, weight)
    output, _ = layers.loaded(o_proj)(x)
    return output


def find(ctx, matches, pattern):
    """Linear layers that read the output of attention."""
    for node in ctx.graph.nodes:
        if node.op != "linear" or node.args.get("module") is None:
            continue
        source = ctx.base(node.args["input"])
        if source.node.op == "attention":
            check_layout(ctx, node, source)
            yield unit(ctx, pattern, node, source, "heads")


def check_layout(ctx, node, source):
    """The heads must reach the projection in order."""
    shape = ctx.shape(source)
    index = np.arange(int(np.prod(shape))).reshape(shape)
    moved = ctx.evaluate(node.args["input"], {id(source): index})
    if not (moved.reshape(-1) == index.reshape(-1)).all():
        raise refuse("FUS401", "The heads of the attention output are reordered before the projection.", place_of(node))


def expected(node):
    """What the engine's layer must be built with."""
    sizes = node.args["weight"].shape
    return (("arg0", sizes[1].value), ("arg1", sizes[0].value), ("bias", node.args.get("bias") is not None))


def unit(ctx, pattern, node, source, axis):
    owner = ctx.owner(node)
    layer = node.args["module"]
    attr = attribute_of(owner.module, layer)
    if attr is None:
        raise refuse("FUS401", "This projection belongs to another module.", place_of(node))
    text = (
        f"RowParallelLinear({argument_text(owner.module, layer, 'in_features')}, "
        f"{argument_text(owner.module, layer, 'out_features')}, bias={argument_text(owner.module, layer, 'bias')}, "
        f'quant_config=quant_config, prefix=f"{{prefix}}.{attr}")'
    )
    covers = frozenset({node.id}) | ctx.upstream([node.args["input"]], [source])
    return Unit(
        pattern.name,
        owner,
        covers,
        (source,),
        (node.outputs[0],),
        (f"{{out0}}, _ = self.{attr}({{in0}})",),
        init=(Assign(attr, text, (attr,), ("quant_config", "prefix"), expects=expected(node)),),
        layouts=(Layout(attr, "row", axis, (attr,), (source.shape[2].value,)),),
        symbols=("RowParallelLinear",),
        what=f"{attr} is row-parallel",
    )
