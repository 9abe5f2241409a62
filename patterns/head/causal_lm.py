"""The language-model head: a projection of the last hidden state to the vocabulary.

The projection is split over the vocabulary and shares its weight with the embedding where
the model ties them. What the source computes between the hidden state and the logits it
returns is kept, op by op.

Example input:

    logits = self.lm_head(outputs.last_hidden_state[:, kept, :])

Example output:

    logits = self.logits_processor(self.lm_head, hidden_states)
"""

from __future__ import annotations

from fusec.diagnostics import refuse
from fusec.match.sites import place_of
from fusec.match.text import attribute_of
from fusec.match.unit import Head
from fusec.plan.types import FoldedCheck


def reference(hidden_states, weight):
    """``hidden_states``: (..., hidden); ``weight``: (vocab, hidden)."""
    return F.linear(hidden_states, weight)


TRIALS = ({"hidden_states": (7, 64), "weight": (96, 64)}, {"hidden_states": (3, 32), "weight": (101, 32)})


def engine(layers, hidden_states, weight):
    lm_head = layers.ParallelLMHead(*weight.shape)
    lm_head.weight_loader(lm_head.weight, weight)
    return layers.LogitsProcessor(len(weight))(layers.loaded(lm_head), hidden_states)


def find(ctx, matches, pattern):
    """The last linear layer before the logits, in the architecture's own forward."""
    decoder = matches.decoder
    frame = next(f for f in ctx.graph.frames if f.module is ctx.graph.root)
    model = next((c for c in ctx.child_calls(frame) if c is decoder.frame), None)
    if model is None:
        raise refuse("FUS401", "The architecture does not call the decoder directly.")
    linears = [n for n in ctx.own_nodes(frame) if n.op == "linear"]
    if len(linears) != 1 or linears[0].args.get("module") is None:
        raise refuse("FUS401", "The head is not one linear layer.", place_of(linears[0]) if linears else None)
    linear = linears[0]
    attr = attribute_of(frame.module, linear.args["module"])
    model_attr = attribute_of(frame.module, model.module)
    if attr is None or model_attr is None:
        raise refuse("FUS401", "The head or the model is not an attribute of the architecture.", place_of(linear))
    check_tying(ctx, matches, f"{attr}.weight")
    hidden = decoder.norm.output if decoder.norm is not None else decoder.last
    matches.head = Head(frame, model, model_attr, hidden, linear.outputs[0], attr, ctx.graph.logits, pattern.name)
    return ()


def check_tying(ctx, matches, name):
    """The port ties where the config says so; a source that cannot tie must meet no such config."""
    tied = ctx.class_attribute(ctx.graph.root, "_tied_weights_keys")
    if not tied or name not in tied:
        if ctx.graph.config.get("tie_word_embeddings"):
            raise refuse("FUS401", f"The config ties {name} to the embedding, but the source does not say that it can.")
        matches.checks.append(
            FoldedCheck("bool(config.tie_word_embeddings)", False, f"the source does not tie {name} to the embedding")
        )
