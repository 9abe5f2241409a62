"""Every row of the table of operations agrees with torch: what it computes, the shape, and the dtype."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from fusec.configure.types import Config
from fusec.diagnostics import FusecError
from fusec.graph.axes import atom
from fusec.graph.ops import BY_ALIAS, OPS, activation
from fusec.graph.tracer import Graph, Tracer
from fusec.graph.values import CallFrame, Tensor
from fusec.match.context import Context
from fusec.read.types import Source
from tests.graph.cases import NoLibrary

GIVEN = {
    "x": torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)),
    "y": torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(2)),
    "p": torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(3)) + 0.5,  # above zero
    "w": torch.randn(5, 4, generator=torch.Generator().manual_seed(4)),
    "b": torch.randn(5, generator=torch.Generator().manual_seed(5)),
    "g": torch.randn(4, generator=torch.Generator().manual_seed(6)),
    "one": torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(7)),
    "i": torch.tensor([[0, 3, 1], [4, 2, 2]]),
    "j": torch.tensor([[1, 2, 1], [3, 2, 5]]),
    "m": torch.tensor([[[True, False, True, True]] * 3, [[False, False, True, False]] * 3]),
}

EXPRESSIONS = """
x.view(2, 12)
x.view((6, -1))
x.view(-1, 4)
x.reshape(2, 3, 2, 2)
x.reshape(-1)
torch.reshape(x, (4, 6))
x.view_as(y)
x.transpose(1, 2)
x.transpose(-1, 0)
torch.transpose(x, 0, 1)
x.swapaxes(0, 2)
torch.swapaxes(x, 0, 2)
x.permute(2, 0, 1)
x.permute((0, -1, 1))
torch.permute(x, (2, 1, 0))
x.contiguous()
x.clone()
torch.clone(x)
x.detach()
x.cpu()
x.unsqueeze(1)
x.unsqueeze(-1)
torch.unsqueeze(x, dim=0)
one.squeeze(1)
one[:, 0].unsqueeze(0).squeeze()
one.squeeze(0)
torch.squeeze(one, 1)
x.flatten()
x.flatten(1)
x.flatten(0, 1)
x.flatten(start_dim=-2)
torch.flatten(x, 1, 2)
x.unflatten(-1, (2, 2))
x.unflatten(1, (-1, 1))
torch.unflatten(x, 2, (2, -1))
one.expand(2, 3, 4)
one.expand(-1, 3, -1)
g.expand(2, 4)
one.expand(5, 2, 3, 4)
x.repeat(1, 2, 1)
x.repeat(2, 1, 1, 3)
torch.tile(x, (2, 1, 1))
x.repeat_interleave(2, dim=1)
torch.repeat_interleave(x, 3, dim=-1)
x.repeat_interleave(repeats=2, dim=0)
x.split(2, dim=-1)
x.split(3, -1)
x.split([1, 2], dim=1)
torch.split(x, [1, 3], -1)
torch.split(x, 1)
x.split_with_sizes([2, 2], 2)
x.chunk(2, dim=-1)
torch.chunk(x, 3, 1)
x.unbind(1)
torch.unbind(x)
torch.unbind(x, dim=-1)
x[0]
x[..., -1]
x[:, 1:, ::2]
x[:, None, 1]
x[..., None]
x[:, :, :-1]
x[-1, -2:]
torch.cat((x, y), dim=-1)
torch.cat([x, one], 1)
torch.concat((x, y))
torch.concatenate((x, y), axis=1)
torch.stack((x, y), dim=1)
torch.stack([x, y, x], -1)
torch.stack((x, y))
x + y
x + 1
2 + x
x + one
i + j
i + 1
i + 1.5
x + i[..., None]
torch.add(x, y)
x.add(2.5)
x * y
3 * i
torch.mul(x, one)
x.mul(y)
torch.multiply(x, y)
x.multiply(0.5)
torch.maximum(x, y)
x.maximum(y)
torch.minimum(x, one)
x.minimum(y)
x == y
i == j
torch.eq(i, 2)
i.eq(j)
x != y
torch.ne(i, j)
i.ne(0)
x - y
1 - x
1 - i
torch.sub(x, y)
x.sub(one)
torch.subtract(x, 1)
x.subtract(y)
x / p
1 / p
i / 2
i / j
torch.div(x, p)
x.div(p)
torch.divide(x, 2)
x.divide(2)
torch.true_divide(i, j)
i.true_divide(2)
i // 2
i // j
x // 0.3
torch.floor_divide(i, j)
i.floor_divide(3)
p**2
p**-0.5
2**x
i**2
2**i
torch.pow(p, 3)
p.pow(exponent=0.5)
x < y
torch.lt(x, 0)
x.lt(y)
x <= y
torch.le(i, 2)
i.le(j)
x > 0
torch.gt(x, y)
x.gt(0.5)
x >= y
torch.ge(i, j)
i.ge(2)
i % 3
x % 0.4
torch.remainder(x, 0.3)
x.remainder(p)
-x
torch.neg(x)
x.neg()
torch.rsqrt(p)
p.rsqrt()
torch.sqrt(p)
p.sqrt()
torch.exp(x)
x.exp()
torch.log(p)
p.log()
torch.cos(x)
x.cos()
i.cos()
torch.sin(x)
x.sin()
torch.abs(x)
x.abs()
torch.floor(x)
x.floor()
torch.reciprocal(p)
p.reciprocal()
torch.square(x)
x.square()
torch.logical_not(m)
m.logical_not()
~m
torch.where(m, x, y)
torch.where(m, x, 0.0)
torch.where(m, 1.0, one)
torch.clamp(x, min=-0.5, max=0.5)
torch.clamp(x, -0.5)
x.clamp(max=0.1)
torch.clip(x, 0, 1)
x.clip(min=0)
x.masked_fill(m, 0.0)
x.masked_fill(m, value=-1e9)
x.float()
x.double()
x.double().float()
x.to(torch.float64)
x.to(y.dtype)
x.to("cpu")
i.to(torch.float32)
i.float()
i.long()
i.int()
(x * 3).long()
(x * 3).to(torch.int32)
m.float()
m.to(torch.int64)
i.bool()
x.type_as(i)
torch.mean(x)
x.mean(-1)
x.mean(dim=(0, 2), keepdim=True)
p.mean([1, 2])
i.float().mean(0)
torch.mean(x, 1, True)
torch.sum(x)
x.sum(dim=-1, keepdim=True)
i.sum(-1)
m.sum(-1)
x.sum(-1, dtype=torch.float64)
torch.amax(x, dim=1)
x.amax(-1, keepdim=True)
torch.var(x, dim=-1)
x.var(-1, keepdim=True, correction=0)
x.var(-1, unbiased=False)
torch.softmax(x, dim=-1)
x.softmax(1)
x.softmax(-2)
F.softmax(x.double(), dim=-1, dtype=torch.float32)
torch.cumsum(x, dim=1)
x.cumsum(-1)
m.cumsum(-1)
x @ y.transpose(1, 2)
x @ w.t()
torch.matmul(x, y.mT)
x.matmul(w.T)
torch.bmm(x, y.transpose(1, 2))
x.bmm(y.transpose(-1, -2))
F.linear(x, w)
F.linear(x, w, b)
F.linear(x, weight=w, bias=b)
torch.einsum("bsh,oh->bso", x, w)
torch.einsum("bsh, bth -> bst", x, y)
F.embedding(i, w)
F.layer_norm(x, (4,), g, g, 1e-6)
F.layer_norm(x, (4,))
F.layer_norm(x, normalized_shape=(4,), weight=g, eps=1e-3)
F.rms_norm(x, (4,), g, 1e-6)
F.rms_norm(x, (4,), eps=0.1)
torch.rms_norm(x, (4,), weight=g)
torch.arange(5)
torch.arange(1, 7)
torch.arange(0, 8, 2)
torch.arange(0, 7, 2, dtype=torch.float32)
torch.arange(0, 4, 2).float()
torch.arange(3.0)
torch.zeros(2, 3)
torch.zeros((2, 3), dtype=torch.float64)
torch.zeros(x.shape)
torch.ones(2)
torch.ones([2, 4])
torch.empty(2, 3).masked_fill(torch.ones(2, 3) == 1, 0.0)
torch.full((2, 3), 0.5)
torch.full((2, 3), 7)
torch.full((2,), fill_value=-1.0)
torch.zeros_like(x)
torch.zeros_like(i)
torch.zeros_like(i, dtype=torch.float32)
torch.ones_like(x)
torch.tensor([[1.0, 2.0], [3.0, 4.0]])
torch.tensor([1, 2, 3])
torch.tensor(2.5)
torch.tensor([1, 2], dtype=torch.float32)
torch.as_tensor([0.5, 1.5])
x.size(1) * x
x.size()[-1] + x
x.dim() + x
x.ndim * x
x.shape[0] * x
x.expand_as(y)
x.reshape_as(y)
F.silu(x)
F.relu(x)
torch.relu(x)
x.relu()
torch.sigmoid(x)
F.sigmoid(x)
x.sigmoid()
torch.tanh(x)
F.tanh(x)
x.tanh()
F.softplus(x)
F.gelu(x)
F.gelu(x, approximate="tanh")
F.dropout(x, p=0.5, training=False)
""".strip().splitlines()

# Of these a machine without an accelerator cannot try the torch side, or the row is not called by a torch name.
NOT_TRIED = {"Tensor.cuda"}
NOT_CALLED = {"input", "parameter", "attention", "rope_init"}


def traced(expression: str) -> tuple[Graph, Any]:
    """The graph of one expression over the names of ``GIVEN``, and its result."""
    text = f"import torch\nimport torch.nn.functional as F\n\n\ndef f({', '.join(GIVEN)}):\n    return {expression}\n"
    tracer = Tracer(NoLibrary(), Config("CaseConfig", "case", {}, {}))
    scope = tracer.load(Source("case.py", "case", text, "case"))
    tracer.current = CallFrame(0, None, None, None, None)
    handles = []
    for name, value in GIVEN.items():
        shape = tuple(atom(f"{name}{axis}", size) for axis, size in enumerate(value.shape))
        handles.append(tracer.source("input", {"name": name}, shape, str(value.dtype).removeprefix("torch.")))
    function = scope.names["f"]
    result = tracer.call_function(function, handles, {}, function.node, None)
    return Graph(None, scope, tracer.config_facts, tracer.nodes, [], [], handles[0], handles[0], handles[0]), result


def several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_operation_is_torchs(expression: str) -> None:
    expected = several(eval(expression, {"torch": torch, "F": torch.nn.functional}, dict(GIVEN)))
    graph, result = traced(expression)
    context = Context(graph, NoLibrary())
    given = {id(graph.nodes[n].outputs[0]): value.numpy() for n, value in enumerate(GIVEN.values())}
    got = several(result)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert isinstance(ours, Tensor)
        value = context.evaluate(ours, given)
        assert np.shape(value) == tuple(size.value for size in ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(np.asarray(value, float), theirs.double().numpy(), rtol=1e-4, atol=1e-5)
        assert f"torch.{ours.dtype}" == str(theirs.dtype)


def test_every_name_in_the_table_is_tried() -> None:
    tried = set()
    for expression in EXPRESSIONS:
        tried |= set(re.findall(r"torch\.\w+", expression))
        tried |= {f"torch.nn.functional.{name}" for name in re.findall(r"\bF\.(\w+)", expression)}
        tried |= {f"Tensor.{name}" for name in re.findall(r"(?<!torch)(?<!\bF)\.(\w+)\(", expression)}
        tried |= {"Tensor.__getitem__"} if re.search(r"\bx\[", expression) else set()
    assert not set(BY_ALIAS) - tried - NOT_TRIED


def test_every_row_is_reached() -> None:
    reached = {node.op for expression in EXPRESSIONS for node in traced(expression)[0].nodes}
    assert not set(OPS) - reached - NOT_CALLED


@pytest.mark.parametrize(
    "name",
    "silu swish gelu gelu_new gelu_pytorch_tanh gelu_fast quick_gelu relu relu2 tanh sigmoid linear".split(),
)
def test_an_activation_is_the_one_of_that_name(name: str) -> None:
    from transformers.activations import ACT2FN

    np.testing.assert_allclose(
        activation(name, GIVEN["x"].double().numpy()), ACT2FN[name](GIVEN["x"].double()).numpy(), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize(
    "expression",
    [
        "x.view(5, -1)",
        "x.view(-1, -1)",
        "x.transpose(0, 3)",
        "x.split([1, 1], dim=-1)",
        "torch.cat((x, w), dim=-1)",
        "torch.cat((x, x[:, :2]), dim=-1)",
        "torch.stack((x, one))",
        "x + w",
        "x.expand(2, 3, 5)",
        "x @ w",
        "F.linear(x, w.t())",
        "F.linear(x, w, g)",
        "torch.einsum('bsh,ho->bso', x, w)",
        "x[:, :, :, 0]",
        "x[5]",
        "x.unflatten(-1, (3, -1))",
        "x.masked_fill(w, 0.0)",
        "F.layer_norm(x, (5,))",
        "F.layer_norm(x, (4,), b)",
        "torch.bmm(x, y)",
        "g.squeeze(1)",
        "torch.rms_norm(x, (5,))",
        "x.mean(3)",
    ],
)
def test_what_torch_refuses_is_refused(expression: str) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        eval(expression, {"torch": torch, "F": torch.nn.functional}, dict(GIVEN))
    with pytest.raises(FusecError):
        traced(expression)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("x.chunk(3, dim=-1)", "the parts are uneven"),
        ("torch.fmod(x, 0.3)", "it is no remainder: the sign is the dividend's"),
        ("x.fmod(p)", "the same"),
        ("~i", "on integers it flips bits"),
        ("i.float_power(2)", "it computes in float64"),
        ("one.squeeze()", "whether an axis has one element depends on the config"),
        ("torch.arange(0, 2, 0.5)", "a step that is no whole number"),
        ("torch.add(x, y, alpha=2)", "a keyword that the table does not have"),
        ("x.sum().item()", "a read on the host"),
        ("x[m]", "its size depends on the data"),
        ("x.nonzero()", "the same"),
    ],
)
def test_what_torch_takes_and_fusec_does_not_follow_is_refused(expression: str, why: str) -> None:
    eval(expression, {"torch": torch, "F": torch.nn.functional}, dict(GIVEN))
    with pytest.raises(FusecError):
        traced(expression)
