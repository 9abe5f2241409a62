"""A norm over each head of query or key, between projection and attention.

The norm sees one head at a time, so it stays on the rank's own heads and needs no
communication.

Example input:

    queries = self.q_norm(queries).transpose(1, 2)
    keys = self.k_norm(keys).transpose(1, 2)

Example output:

    queries = self.q_norm(queries.unflatten(-1, (self.num_heads, self.head_dim))).flatten(-2)
    keys = self.k_norm(keys.unflatten(-1, (self.num_kv_heads, self.head_dim))).flatten(-2)
"""

from __future__ import annotations

import numpy as np

from fusec.diagnostics import refuse
from fusec.match.sites import place_of, sites
from fusec.match.text import attribute_of
from fusec.match.unit import Assign, Layout, Unit


def reference(x, weight, eps):
    """``x``: (batch, seq, heads, head_dim); ``weight``: (head_dim,)."""
    y = x.to(torch.float32)
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return weight * y.to(x.dtype)


TRIALS = ({"x": (1, 7, 4, 32), "weight": (32,), "eps": 1e-6}, {"x": (1, 3, 1, 64), "weight": (64,), "eps": 0.5})


def engine(layers, x, weight, eps):
    norm = layers.RMSNorm(x.shape[-1], eps=eps)
    norm.weight.copy_(weight)
    heads = x.flatten(-2)  # the projection's own layout
    return norm(heads.unflatten(-1, x.shape[-2:])).flatten(-2).view(x.shape)


def find(ctx, matches, pattern):
    """The norms between the projections and the attention call."""
    for site in sites(ctx, matches):
        for operand, heads in ((site.query, "num_heads"), (site.key, "num_kv_heads"), (site.value, "num_kv_heads")):
            norm = operand.norm
            if norm is None:
                continue
            size = operand.tensor.shape[-1].value
            shape = ctx.shape(norm.input)
            if shape[-1] != size:
                raise refuse(
                    "FUS401",
                    f"This norm runs over {shape[-1]} elements of a projection that ranks share by heads of {size}.",
                    place_of(norm.output.node),
                    "A norm over all heads needs a pattern that reduces across ranks.",
                )
            head_rows(ctx, operand, size)
            attr = attribute_of(site.frame.module, norm.module)
            constructor = constructors(ctx, matches, site, norm)
            covers = norm.covers | ctx.upstream([norm.input], [operand.projection.outputs[0]])
            yield Unit(
                pattern.name,
                site.frame,
                frozenset(covers),
                (ctx.raw_base(norm.input),),
                (norm.output,),
                (f"{{out0}} = self.{attr}({{in0}}.unflatten(-1, (self.{heads}, self.head_dim))).flatten(-2)",),
                init=(Assign(attr, constructor, (attr,), expects=(("arg0", size), ("eps", norm.eps))),),
                layouts=(Layout(attr, "replicated", None, (attr,)),),
                symbols=("RMSNorm",),
                what=f"{attr} normalises each head on its own rank",
            )


def head_rows(ctx, operand, size):
    """Each normalised vector must be the rows of one head, in order."""
    norm, projection = operand.norm, operand.projection.outputs[0]
    index = np.arange(int(np.prod(ctx.shape(projection)))).reshape(ctx.shape(projection))
    moved = ctx.evaluate(norm.input, {id(projection): index})
    first = moved[..., :1]
    if not (moved == first + np.arange(size)).all() or (first % size).any():
        raise refuse("FUS401", "This norm does not run over the elements of one head.", place_of(norm.output.node))


def constructors(ctx, matches, site, norm):
    from fusec.match.text import argument_text, value_text

    names = list(norm.module.ctor.arguments)
    owner = site.frame.module
    size = argument_text(owner, norm.module, names[0])
    eps = next(
        (argument_text(owner, norm.module, n) for n in names if norm.module.ctor.arguments[n] is norm.eps),
        value_text(norm.eps),
    )
    return f"{norm.layer}({size}, eps={eps})"
