"""RMSNorm, computed in float32 and cast back before the weight is applied.

The engine's fused layer computes the same and can add a residual on the way. It rounds
like the source: the product with the weight is taken after the cast.

Example input:

    self.norm = TinyModelRMSNorm(config.hidden_size, eps=config.rms_norm_eps)

Example output:

    self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
"""

from __future__ import annotations

from fusec.diagnostics import refuse
from fusec.graph.tracer import is_module
from fusec.graph.values import Tensor
from fusec.match.sites import place_of
from fusec.match.text import argument_text, attribute_of, value_text
from fusec.match.unify import unify
from fusec.match.unit import Assign, Layout, Norm, Unit


def reference(x, weight, eps):
    """``x``: (..., size) in the model's dtype; ``weight``: (size,)."""
    y = x.to(torch.float32)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)


TRIALS = ({"x": (7, 64), "weight": (64,), "eps": 1e-6}, {"x": (3, 80), "weight": (80,), "eps": 0.5})


def engine(layers, x, weight, eps):
    norm = layers.RMSNorm(x.shape[-1], eps=eps)
    norm.weight.copy_(weight)
    return norm(x)


def find(ctx, matches, pattern):
    """Every module call that computes the reference on its one tensor argument."""
    for frame in ctx.graph.frames:
        module = frame.module
        if (
            id(frame.result) in matches.norm_outputs
            or module is None
            or not is_module(module)
            or not isinstance(frame.result, Tensor)
        ):
            continue
        inputs = [v for v in frame.arguments.values() if isinstance(v, Tensor)]
        if len(inputs) != 1 or not inputs[0].shape or ctx.child_calls(frame):
            continue
        x = inputs[0]
        weight = ctx.variable("weight", x)
        weight.shape, weight.dtype = x.shape[-1:], "model"
        out = ctx.reference(
            pattern.source, "reference", {"x": ctx.variable("x", x), "weight": weight, "eps": ctx.scalar("eps", 1e-6)}
        )
        found = unify(out, frame.result, {"x": x})
        if found is None or found["weight"].node.op != "parameter":
            continue
        owner = ctx.caller(frame)
        if owner is None or attribute_of(owner.module, module) is None:
            continue  # called through another class of its own
        name = found["weight"].node.args["name"]
        if name != "weight":
            raise refuse(
                "FUS403",
                f"The weight of this norm is called {name!r}, and the engine's norm calls it 'weight'.",
                place_of(frame.result.node),
                "The checkpoint's names must be mapped, which fusec cannot do yet.",
            )
        covers = frozenset(n.id for n in ctx.own_nodes(frame))
        norm = Norm(frame, module, x, frame.result, found["weight"], found["eps"], pattern.name, covers, "RMSNorm")
        matches.norms[id(module)] = norm
        matches.norm_outputs[id(frame.result)] = norm
        if len(x.shape) == 3:
            yield unit(owner, norm)


def unit(owner, norm):
    """A norm over the whole hidden vector of each token."""
    attr = attribute_of(owner.module, norm.module)
    return Unit(
        norm.pattern,
        owner,
        norm.covers,
        (norm.input,),
        (norm.output,),
        (f"{{out0}} = self.{attr}({{in0}})",),
        init=(Assign(attr, constructor(owner.module, norm), (attr,), expects=expected(norm)),),
        layouts=(Layout(attr, "replicated", None, (attr,)),),
        symbols=("RMSNorm",),
        what=f"{norm.module.class_name} is the engine's RMSNorm",
    )


def expected(norm):
    """What the engine's norm must be built with."""
    return (("arg0", norm.input.shape[-1].value), ("eps", norm.eps))


def constructor(owner, norm):
    """``RMSNorm(size, eps=eps)`` with the source's own expressions where it states them."""
    call_names = list(norm.module.ctor.arguments)
    size = argument_text(owner, norm.module, call_names[0])
    eps = next(
        (argument_text(owner, norm.module, n) for n in call_names if norm.module.ctor.arguments[n] is norm.eps),
        value_text(norm.eps),
    )
    return f"RMSNorm({size}, eps={eps})"
