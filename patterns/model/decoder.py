"""The decoder: token embedding, a list of layers that each read the one before, a final norm.

The embedding is split over the vocabulary; the layers are spread over pipeline stages,
which hand each other the branch and the residual stream; the model is compiled as one.

Example input:

    self.layers = nn.ModuleList(TinyModelDecoderLayer(config, i) for i in range(config.num_hidden_layers))

Example output:

    for layer in islice(self.layers, self.start_layer, self.end_layer):
        hidden_states, residual = layer(positions, hidden_states, residual)
"""

from __future__ import annotations

from fusec.diagnostics import refuse
from fusec.graph.values import Instance, Tensor
from fusec.match.sites import place_of
from fusec.match.text import attribute_of
from fusec.match.unit import Decoder


# No engine form to try here: what replaces it is the frame around the layers; its lookup does not round.
def reference(input_ids, weight):
    """``input_ids``: (batch, seq); ``weight``: (vocab, hidden)."""
    return F.embedding(input_ids, weight)


def find(ctx, matches, pattern):
    """The one module whose forward calls every element of a module list in a chain."""
    for frame in ctx.graph.frames:
        if frame.module is None:
            continue
        calls = ctx.child_calls(frame)
        for name, held in frame.module.attrs.items():
            if isinstance(held, Instance) and held.items and all(isinstance(i, Instance) for i in held.items):
                layers = [c for c in calls if any(c.module is i for i in held.items)]
                if len(layers) == len(held.items):
                    if [id(c.module) for c in layers] != [id(i) for i in held.items]:
                        raise refuse("FUS401", "The layers are not run one after the other in the order of their list.")
                    matches.decoder = decoder(ctx, matches, pattern, frame, name, layers)
                    return ()
    raise refuse("FUS401", "No module of this architecture runs a list of layers one after the other.")


def decoder(ctx, matches, pattern, frame, name, layers):
    previous = None
    for call in layers:
        tensors = [v for v in call.arguments.values() if isinstance(v, Tensor) and ctx.from_tokens(v)]
        if len(tensors) != 1 or (previous is not None and ctx.base(tensors[0]) is not ctx.base(previous)):
            raise refuse(
                "FUS401",
                "A layer reads something besides the result of the layer before it.",
                place_of(tensors[0].node) if tensors else None,
                "Side channels between layers are not supported yet.",
            )
        if previous is None:
            embedded = tensors[0]
        previous = call.result[0] if isinstance(call.result, tuple) else call.result
        if not isinstance(previous, Tensor):
            raise refuse("FUS401", "A layer does not return its hidden states first.")
    looked_up = [n for n in ctx.own_nodes(frame) if n.op == "embedding" and n.args["input"] is ctx.graph.input_ids]
    if len(looked_up) != 1 or looked_up[0].args.get("module") is None:
        raise refuse("FUS401", "The model does not embed its tokens with one embedding module.")
    attr = attribute_of(frame.module, looked_up[0].args["module"])
    norm = next(
        (n for n in matches.norms.values() if ctx.caller(n.frame) is frame and ctx.base(n.input) is ctx.base(previous)),
        None,
    )
    return Decoder(frame, looked_up[0].outputs[0], attr, name, tuple(layers), embedded, previous, norm, pattern.name)
