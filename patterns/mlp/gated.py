"""A gated feed-forward: ``down(act(gate(x)) * up(x))``.

Gate and up become one column-parallel layer whose output the engine's fused activation
multiplies; down is row-parallel.

Example input:

    return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))

Example output:

    gate_up, _ = self.gate_up_proj(x)
    x = self.act_fn(gate_up)
    output, _ = self.down_proj(x)
    return output
"""

from __future__ import annotations

from fusec.diagnostics import refuse
from fusec.graph.values import Tensor, plain
from fusec.match.sites import place_of
from fusec.match.text import argument_text, attribute_of, fused_name, size_text, value_text
from fusec.match.unify import unify
from fusec.match.unit import Assign, Layout, Stacked, Unit

FUSED_ACTIVATIONS = frozenset({"silu", "swish", "gelu", "gelu_pytorch_tanh"})
"""What the engine's activation-and-multiply knows by the config's names."""


def reference(gate, up, kind):
    """``gate``, ``up``: (..., intermediate)."""
    return ACT2FN[kind](gate) * up


TRIALS = tuple({"gate": (7, 64), "up": (7, 64), "kind": kind} for kind in sorted(FUSED_ACTIVATIONS))


def engine(layers, gate, up, kind):
    return layers.get_act_and_mul_fn(kind)(torch.cat((gate, up), dim=-1))


def find(ctx, matches, pattern):
    """Each product of an activated and a plain projection of one input that feeds a projection."""
    for node in ctx.graph.nodes:
        if node.op != "linear" or node.args.get("module") is None:
            continue
        product = ctx.base(node.args["input"])
        if product.node.op != "mul":
            continue
        gate, up = ctx.variable("gate", product), ctx.variable("up", product)
        out = ctx.reference(pattern.source, "reference", {"gate": gate, "up": up, "kind": ctx.scalar("kind", 0)})
        found = unify(out, product, {})
        if found is None:
            continue
        parts = [ctx.base(found["gate"]), ctx.base(found["up"])]
        if any(p.node.op != "linear" for p in parts) or ctx.base(parts[0].node.args["input"]) is not ctx.base(
            parts[1].node.args["input"]
        ):
            continue
        yield from units(ctx, pattern, node, product, [p.node for p in parts], found["kind"])


def units(ctx, pattern, down, product, parts, kind):
    owner = ctx.owner(down)
    module = owner.module
    layers = [p.args.get("module") for p in parts]
    attrs = tuple(attribute_of(module, layer) for layer in layers)
    down_attr = attribute_of(module, down.args["module"])
    if None in attrs or down_attr is None:
        raise refuse("FUS401", "The projections of this feed-forward belong to another module.", place_of(down))
    if plain(kind) not in FUSED_ACTIVATIONS:
        raise refuse("FUS401", f"The engine has no fused activation for {plain(kind)!r}.", place_of(product.node))
    biases = [bool(plain(layer.ctor.arguments["bias"])) for layer in layers]
    sizes = [argument_text(module, layer, "out_features") for layer in layers]
    bias = dict.fromkeys(argument_text(module, layer, "bias") for layer in layers)
    if len(set(biases)) != 1 or len(bias) != 1:
        raise refuse(
            "FUS401", "Gate and up differ in their bias, which the fused layer cannot express.", place_of(down)
        )
    name = fused_name(attrs)
    act = activation_attr(module, ctx, product)
    outputs = f"[{sizes[0]}] * 2" if sizes[0] == sizes[1] else f"[{sizes[0]}, {sizes[1]}]"
    hidden = argument_text(module, layers[0], "in_features")
    gate_up = (
        f"MergedColumnParallelLinear({hidden}, {outputs}, bias={next(iter(bias))}, "
        f'quant_config=quant_config, prefix=f"{{prefix}}.{name}")'
    )
    size = product.shape[-1]
    covers = {p.id for p in parts} | ctx.upstream([product], [p.outputs[0] for p in parts])
    yield Unit(
        pattern.name,
        owner,
        frozenset(covers),
        (parts[0].args["input"],),
        (product,),
        (f"{{tmp0}}, _ = self.{name}({{in0}})", f"{{out0}} = self.{act}({{tmp0}})"),
        tmps=("gate_up",),
        hints=("{in0}",),
        init=(
            Assign(
                name,
                gate_up,
                attrs,
                ("quant_config", "prefix"),
                expects=(
                    ("arg0", parts[0].args["input"].shape[-1].value),
                    ("arg1", [p.outputs[0].shape[-1].value for p in parts]),
                    ("bias", biases[0]),
                ),
            ),
            Assign(act, f"get_act_and_mul_fn({value_text(kind)})", (act,), expects=(("arg0", kind),)),
        ),
        drops=attrs,
        stacked=tuple(Stacked(a, name, i) for i, a in enumerate(attrs)),
        layouts=(Layout(name, "column", "intermediate", attrs, (size.value,), (size_text(None, size),)),),
        symbols=("MergedColumnParallelLinear", "get_act_and_mul_fn"),
        what=f"{', '.join(attrs)} fused into {name}",
    )
    row = (
        f"RowParallelLinear({argument_text(module, down.args['module'], 'in_features')}, "
        f"{argument_text(module, down.args['module'], 'out_features')}, "
        f"bias={argument_text(module, down.args['module'], 'bias')}, "
        f'quant_config=quant_config, prefix=f"{{prefix}}.{down_attr}")'
    )
    yield Unit(
        pattern.name,
        owner,
        frozenset({down.id}),
        (product,),
        (down.outputs[0],),
        (f"{{out0}}, _ = self.{down_attr}({{in0}})",),
        hints=("output",),
        init=(
            Assign(
                down_attr,
                row,
                (down_attr,),
                ("quant_config", "prefix"),
                expects=(
                    ("arg0", product.shape[-1].value),
                    ("arg1", down.outputs[0].shape[-1].value),
                    ("bias", down.args.get("bias") is not None),
                ),
            ),
        ),
        layouts=(Layout(down_attr, "row", "intermediate", (down_attr,), (product.shape[-1].value,)),),
        symbols=("RowParallelLinear",),
        what=f"{down_attr} is row-parallel",
    )


def activation_attr(module, ctx, product):
    """The attribute that holds the activation, or a new one where the source calls a function."""
    for value in product.node.args.values():
        if isinstance(value, Tensor) and ctx.base(value).node.op == "act":
            held = ctx.base(value).node.args.get("module")
            return (attribute_of(module, held) if held is not None else None) or "act_fn"
    return "act_fn"
