"""Each trace case has the graph that stands beside it, and that graph computes what Python and torch compute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fusec.graph.tracer import BATCH_VALUE, SEQ_VALUE
from fusec.match.context import Context
from tests.graph.cases import FOLDER, NoLibrary, graph_of, names, printed, source_of, values_of

EXPECTED = {name: (FOLDER / f"{name}.txt").read_text(encoding="utf-8") for name in names()}
TRACED = [name for name, text in EXPECTED.items() if not text.startswith("FUS")]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_graph_is_the_expected_one(name: str) -> None:
    assert printed(source_of(name)) == EXPECTED[name]


@pytest.mark.parametrize("name", TRACED)
def test_the_graph_computes_what_torch_computes(name: str) -> None:
    source = source_of(name)
    scope: dict[str, Any] = {"__name__": source.module}
    exec(compile(source.text, source.name, "exec"), scope)
    torch.manual_seed(0)
    model = scope["Model"](SimpleNamespace(**values_of(source))).eval()
    input_ids = torch.randint(0, 4, (BATCH_VALUE, SEQ_VALUE))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
        expected = model(input_ids)

    graph = graph_of(source)
    held = dict(model.named_parameters())
    given = {id(graph.input_ids): input_ids.numpy()}
    for node in graph.nodes:
        if node.op == "parameter":
            owner = node.args["owner"]
            path = f"{owner.path}.{node.args['name']}" if owner.path else node.args["name"]
            given[id(node.outputs[0])] = held[path].detach().numpy()
    got = Context(graph, NoLibrary()).evaluate(graph.logits, given)
    assert got.shape == tuple(expected.shape) == tuple(size.value for size in graph.logits.shape)
    assert str(expected.dtype) == f"torch.{(graph.logits.dtype or '').replace('model', 'float32')}"
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-5)
