"""A reference equals what computes the same and rounds the same, however it is spelled, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from fusec.configure.types import Config
from fusec.graph.axes import BATCH, SEQ, atom
from fusec.graph.tracer import Tracer
from fusec.graph.values import CallFrame, Tensor
from fusec.match.context import Context
from fusec.match.unify import unify
from fusec.read.types import Source
from tests.graph.cases import NoLibrary

REFERENCE = """
y = x.to(torch.float32)
y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
return weight * y.to(x.dtype)
"""
SAME = {
    "itself": REFERENCE,
    "float and square": """
h = x.float()
return weight * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
""",
    "swapped operands": """
h = x.float()
v = torch.mean(h * h, dim=-1, keepdim=True)
return (torch.rsqrt(eps + v) * h).type_as(x) * weight
""",
    "a power of minus one half": """
h = x.to(dtype=torch.float32)
return weight * (h * (h**2).mean(-1, True).add(eps) ** -0.5).to(x.dtype)
""",
    "one over the root": """
h = x.float()
return weight * (h * (1 / torch.sqrt(h.pow(2).mean(dim=(-1,), keepdim=True) + eps))).to(x.dtype)
""",
    "the axis counted from the front": """
h = x.float()
return weight * (h * torch.rsqrt(h.pow(2).mean(2, keepdim=True) + eps)).to(x.dtype)
""",
    "casts that change nothing": """
h = x.float().float().contiguous()
return weight.to(x.dtype) * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
""",
}
OTHER = {
    "another exponent": REFERENCE.replace("pow(2)", "pow(3)"),
    "another axis": REFERENCE.replace("mean(-1,", "mean(1,"),
    "a sum": REFERENCE.replace(".mean(", ".sum("),
    "a difference": REFERENCE.replace("+ eps", "- eps"),
    "epsilon outside of the root": REFERENCE.replace("rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)",
                                                     "rsqrt(y.pow(2).mean(-1, keepdim=True)) + eps"),
    "no cast to float32": REFERENCE.replace("x.to(torch.float32)", "x"),
    "the cast after the weight": REFERENCE.replace("weight * y.to(x.dtype)", "(weight * y).to(x.dtype)"),
    "no cast back": REFERENCE.replace("y.to(x.dtype)", "y"),
    "no weight": REFERENCE.replace("weight * ", ""),
    "divided by the root": REFERENCE.replace("y * torch.rsqrt(", "y / torch.sqrt("),
    "centred": REFERENCE.replace("y = y *", "y = y - y.mean(-1, keepdim=True)\ny = y *"),
    "the other operand of a difference": REFERENCE.replace("+ eps", "* 1.0 + eps"),
}  # fmt: skip


def traced(body: str, arguments: dict[str, Any]) -> Any:
    """What a function body gives for some arguments."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    text = f"import torch\n\n\ndef f({', '.join(arguments)}):\n{lines}"
    tracer = Tracer(NoLibrary(), Config("CaseConfig", "case", {}, {}))
    function = tracer.load(Source("case.py", "case", text, "case")).names["f"]
    tracer.current = CallFrame(0, None, None, None, None)
    return tracer.call_function(function, [], arguments, function.node, None)


def inputs() -> dict[str, Any]:
    """``x``: (batch, seq, 8) and ``weight``: (8,) in the model's dtype, as a model has them; ``eps``."""
    tracer = Tracer(NoLibrary(), Config("CaseConfig", "case", {}, {}))
    tracer.current = CallFrame(0, None, None, None, None)
    hidden = atom("config.hidden_size", 8)
    x = tracer.source("input", {"name": "x"}, (atom(BATCH, 2), atom(SEQ, 5), hidden), "model")
    weight = tracer.source("parameter", {"name": "weight"}, (hidden,), "model")
    return {"x": x, "weight": weight, "eps": 1e-5}


def variables(given: dict[str, Any]) -> dict[str, Any]:
    """A pattern's variables in place of ``given``."""
    return {
        name: Context.variable(name, value) if isinstance(value, Tensor) else Context.scalar(name)
        for name, value in given.items()
    }


@pytest.mark.parametrize("name", SAME)
def test_another_spelling_is_the_same(name: str) -> None:
    given = inputs()
    found = unify(traced(REFERENCE, variables(given)), traced(SAME[name], given), {})
    assert found is not None
    assert found["x"] is given["x"]
    assert found["weight"] is given["weight"]
    assert found["eps"] == 1e-5


@pytest.mark.parametrize("name", OTHER)
def test_another_computation_is_not(name: str) -> None:
    assert OTHER[name] != REFERENCE
    given = inputs()
    assert unify(traced(REFERENCE, variables(given)), traced(OTHER[name], given), {}) is None


@pytest.mark.parametrize("weight", ["(1 + weight)", "weight * weight"])
def test_a_variable_binds_what_is_computed_there(weight: str) -> None:
    """So a pattern that wants a parameter asks for one."""
    given = inputs()
    found = unify(traced(REFERENCE, variables(given)), traced(REFERENCE.replace("weight", weight), given), {})
    assert found is not None
    assert found["weight"].node.op in ("add", "mul")


def test_a_variable_stands_for_one_value() -> None:
    given = inputs()
    reference = traced("return x * eps + x.square()", variables(given))
    assert unify(reference, traced("return x * 3 + x * x", given), {})
    other = {**given, "y": inputs()["x"]}
    assert unify(reference, traced("return x * 3 + y * y", other), {}) is None
    twice = traced("return x * eps + eps", variables(given))
    assert unify(twice, traced("return x * 3 + 3", given), {}) is not None
    assert unify(twice, traced("return x * 3 + 4", given), {}) is None


def test_what_does_not_commute_is_not_swapped() -> None:
    given = inputs()
    for operator in ("-", "/", "**"):
        reference = traced(f"return x {operator} eps", variables(given))
        assert unify(reference, traced(f"return x {operator} 3", given), {}) is not None
        assert unify(reference, traced(f"return 3 {operator} x", given), {}) is None
