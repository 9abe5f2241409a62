"""Pre-norm residual blocks: ``x = x + f(norm(x))``, once or more per layer.

The addition is left to the next norm, in this layer or the next one: the engine's norm
adds and normalises in one kernel. A layer takes and returns the branch and the residual
stream as a pair.

Example input:

    hidden_states = hidden_states + attended
    return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))

Example output:

    hidden_states, residual = self.post_attention_layernorm(attended, residual)
    hidden_states = self.mlp(hidden_states)
    return hidden_states, residual
"""

from __future__ import annotations

from fusec.graph.values import Tensor
from fusec.match.text import attribute_of
from fusec.match.unit import Thread, Unit


def reference(x, branch):
    """``x``: the stream before the block; ``branch``: what the block computed from its norm."""
    return x + branch


TRIALS = ({"x": (7, 64), "branch": (7, 64)},)


def engine(layers, x, branch):
    _, residual = layers.RMSNorm(x.shape[-1])(branch, x)
    return residual


def find(ctx, matches, pattern):
    """Modules whose result is a chain of residual additions back to their own argument."""
    for frame in ctx.graph.frames:
        if frame.module is None or id(frame.module) in matches.norms:
            continue
        result = frame.result[0] if isinstance(frame.result, tuple) and frame.result else frame.result
        if isinstance(result, Tensor) and result.node.op == "add":
            yield from blocks(ctx, matches, pattern, frame, result)


def blocks(ctx, matches, pattern, frame, result):
    arguments = {id(ctx.base(v)) for v in frame.arguments.values() if isinstance(v, Tensor)}
    norms = {id(ctx.base(n.input)): n for n in matches.norms.values() if ctx.caller(n.frame) is frame}
    steps = []
    total = ctx.base(result)
    while id(total) not in arguments:
        step = block(ctx, norms, total)
        if step is None:
            return
        steps.append((total, *step))
        total = ctx.base(step[0])
    if not steps:
        return
    steps.reverse()
    yield from units(ctx, matches, pattern, frame, steps)


def block(ctx, norms, total):
    """(stream before, branch, norm) of one addition: the branch must be computed from the norm of the stream."""
    if total.node.op != "add":
        return None
    sides = [total.node.args["input"], total.node.args["other"]]
    if not all(isinstance(s, Tensor) for s in sides):
        return None
    for stream, branch in (sides, sides[::-1]):
        norm = norms.get(id(ctx.base(stream)))
        if norm is not None and reads_only(ctx, branch, norm):
            return stream, branch, norm
    return None


def reads_only(ctx, branch, norm):
    """The branch takes its tokens from the norm's output alone."""
    seen = ctx.upstream([branch], [norm.output])
    return ctx.graph.input_ids.node.id not in seen and not (seen & norm.covers)


def units(ctx, matches, pattern, frame, steps):
    sums = {id(ctx.base(total)) for total, *_ in steps}
    for i, (total, _, _, norm) in enumerate(steps):
        attr = attribute_of(frame.module, norm.module)
        if i == 0:
            code = (
                "if residual is None:",
                "    residual = {in0}",
                f"    {{out0}} = self.{attr}({{in0}})",
                "else:",
                f"    {{out0}}, residual = self.{attr}({{in0}}, residual)",
            )
            taken = norm.input
        else:
            code = (f"{{out0}}, residual = self.{attr}({{in0}}, residual)",)
            taken = steps[i - 1][2]
        old = next(u for u in matches.of(frame) if u.outputs[0] is norm.output)
        matches.of(frame).remove(old)
        yield Unit(
            pattern.name,
            frame,
            old.covers | {total.node.id},
            (taken,),
            (norm.output,),
            code,
            init=old.init,
            layouts=old.layouts,
            symbols=old.symbols,
            what=f"{attr} also adds the residual",
        )
    matches.threads[frame.id] = Thread(frame, steps[0][3].input, steps[-1][2], frozenset(sums), pattern.name)
