"""Causal attention behind transformers' attention interface.

The file's own eager attention says what the call means: it is traced once and compared by
value with softmax(q k^T * scale + mask) v. The window of a layer is the one of its mask;
a keyword that says otherwise is refused.

Example input:

    output, weights = attention(
        self,
        queries,
        keys,
        values,
        attention_mask,
        scaling=self.scaling,
        sliding_window=self.sliding_window,
        **kwargs,
    )

Example output:

    output = self.attn(queries, keys, values)
"""

from __future__ import annotations

import ast

import numpy as np

from fusec.diagnostics import refuse
from fusec.graph.values import External, Instance, Sym, plain
from fusec.match.context import signature
from fusec.match.sites import place_of, sites
from fusec.match.text import value_text
from fusec.match.unit import Assign, Unit
from fusec.plan.types import FoldedCheck


# No engine form to try here: the engine's attention reads a paged cache that only a run of the engine fills.
def reference(query, key, value, mask, scale):
    """``query``: (batch, heads, seq, head_dim); ``key``, ``value``: with kv heads; ``mask`` is added."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = torch.matmul(query, key.transpose(2, 3)) * scale + mask
    return torch.matmul(torch.softmax(scores, dim=-1), value).transpose(1, 2)


def find(ctx, matches, pattern):
    """Each attention call, confirmed and with its window and scale."""
    confirmed = set()
    if ctx.graph.config.get("is_causal", True) is not True:
        raise refuse("FUS401", "The config asks for attention that is not causal.")
    matches.checks.append(
        FoldedCheck("getattr(config, 'is_causal', True)", True, "the masks that the source makes are causal by default")
    )
    called = [id(site.frame.module) for site in sites(ctx, matches)]
    for site in sites(ctx, matches):
        node, owner = site.node, site.frame
        scale = node.args.get("scaling")
        if scale is None:
            scale = Sym(site.query.tensor.shape[-1].value ** -0.5, "self.head_dim**-0.5")
        if called.count(id(owner.module)) > 1:
            raise refuse("FUS401", "This module attends more than once, but has one cache.", place_of(node))
        definition = ctx.graph.definitions[node.id]
        computed = (signature(list(definition.nodes)), float(plain(scale)))
        if computed not in confirmed:
            confirm(ctx, definition, float(plain(scale)), place_of(node))
            confirmed.add(computed)
        if plain(node.args.get("is_causal", True)) is False:
            raise refuse("FUS401", "This attention is not causal.", place_of(node))
        if node.args.get("softcap") is not None and plain(node.args["softcap"]) is not None:
            raise refuse("FUS401", "Soft-capped attention scores need a pattern of their own.", place_of(node))
        arguments = [
            "self.num_heads",
            "self.head_dim",
            keyword_text(owner, node, "scaling", scale),
            "num_kv_heads=self.num_kv_heads",
            "cache_config=cache_config",
            "quant_config=quant_config",
        ]
        window = window_text(ctx, site)
        if window is not None:
            arguments.append(f"per_layer_sliding_window={window}")
        arguments.append('prefix=f"{prefix}.attn"')
        output = node.outputs[0]
        expects = (("arg2", scale), *((("per_layer_sliding_window", window_of(ctx, site)),) if window else ()))
        yield Unit(
            pattern.name,
            owner,
            frozenset({node.id}),
            tuple(ctx.raw_base(o.tensor) for o in (site.query, site.key, site.value)),
            (output,),
            ("{out0} = self.attn({in0}, {in1}, {in2})",),
            hints=("attn_output",),
            init=(
                Assign(
                    "attn",
                    f"Attention({', '.join(arguments)})",
                    needs=("cache_config", "quant_config", "prefix"),
                    last=True,
                    expects=expects,
                ),
            ),
            symbols=("Attention",),
            what="causal attention over the engine's paged cache",
        )


def confirm(ctx, definition, scale, place):
    """Compare the file's eager attention with the reference on random inputs."""
    # ordinary scores, and scores far out, where a clamp or a cap would show
    for spread in (1.0, 300.0):
        compare(ctx, definition, scale, spread, place)


def compare(ctx, definition, scale, spread, place):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(ctx.shape(t)) for t in (definition.query, definition.key, definition.value))
    q = q * spread
    n = ctx.shape(definition.mask)[-1]
    mask = np.triu(np.full((n, n), -1e9), 1)[None, None].repeat(q.shape[0], 0)
    given = {
        id(t): a
        for t, a in zip(
            (definition.query, definition.key, definition.value, definition.mask), (q, k, v, mask), strict=True
        )
    }
    got = ctx.evaluate(definition.output, given)
    groups = q.shape[1] // k.shape[1]
    scores = q @ np.swapaxes(np.repeat(k, groups, 1), 2, 3) * scale + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.swapaxes(weights / weights.sum(-1, keepdims=True) @ np.repeat(v, groups, 1), 1, 2)
    if got.shape != expected.shape or not np.allclose(got, expected, rtol=1e-7, atol=1e-9):
        raise refuse(
            "FUS404",
            "The file's eager attention is not softmax(q k^T * scaling + mask) v with grouped heads.",
            place,
            "The engine's attention computes that; anything else needs a pattern of its own.",
        )


def window_of(ctx, site):
    """The window that this layer's mask or keyword sets, ``None`` for full attention. Both must agree."""
    mask, keyword = site.node.args.get("mask"), site.node.args.get("sliding_window")
    kind = mask.attrs["kind"] if isinstance(mask, Instance) and mask.cls == External("mask") else None
    stated = plain(keyword)
    if kind not in ("full", "sliding"):
        raise refuse(
            "FUS401",
            f"The attention mask of this call is {kind or 'not one'} that the engine's attention knows.",
            place_of(site.node),
        )
    config = ctx.graph.config
    masked = config["sliding_window"] if kind == "sliding" and "sliding_window" in config else None
    if kind == "sliding" and masked is None:
        raise refuse("FUS401", "A sliding mask is made, but the config states no sliding_window.", place_of(site.node))
    if "sliding_window" in site.node.args and stated != masked:
        raise refuse(
            "FUS401",
            f"The mask of this layer has the window {masked}, but the attention call says {stated}.",
            place_of(site.node),
        )
    return masked


def window_text(ctx, site):
    """The keyword's own expression, which follows the config layer by layer; ``None`` where
    the source states no window at all."""
    keyword = call_keyword(site.node, "sliding_window")
    if keyword is not None and not isinstance(keyword, ast.Constant):
        window_of(ctx, site)
        return ast.unparse(keyword)
    if window_of(ctx, site) is None:
        return None
    raise refuse(
        "FUS401",
        "The window of this layer is only in its mask; fusec cannot say it in the constructor yet.",
        place_of(site.node),
    )


def keyword_text(owner, node, name, value):
    written = call_keyword(node, name)
    return ast.unparse(written) if written is not None else value_text(value)


def call_keyword(node, name):
    """The expression of a keyword at the attention call, if it reads only what __init__ has too."""
    if not isinstance(node.call, ast.Call):
        return None
    for keyword in node.call.keywords:
        if keyword.arg == name and all(
            n.id in ("self", "config", "getattr", "hasattr") for n in ast.walk(keyword.value) if isinstance(n, ast.Name)
        ):
            return keyword.value
    return None
