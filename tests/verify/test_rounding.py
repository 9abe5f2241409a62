"""Comparing single modules in bfloat16 on the same inputs."""

from pathlib import Path

import pytest
import torch
from torch import nn

from fusec.verify.harness.rounding import Rounding, measure, ratio, record, summarize

WIDTH = 64


class Norm(nn.Module):
    """Divides by the root mean square; ``where`` says in which dtype the squares are summed and what is rounded."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.where = where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x if self.where == "low" else x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.where == "last":
            return (self.weight.float() * y).to(x.dtype)
        if self.where == "twice":
            y = (y.to(x.dtype) * 3).to(x.dtype).float() / 3
        return self.weight * y.to(x.dtype)


class Layer(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.norm, self.out = Norm(where), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x))


class Model(nn.Module):
    def __init__(self, where: str = "first") -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList([Layer(where) for _ in range(3)])

    def forward(self, tokens: torch.Tensor, use_cache: bool) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return x


class Tiny(Model):
    packed_modules_mapping = None


def compare(port: str, tmp_path: Path, kind: type[Model] = Model) -> dict[str, Rounding]:
    torch.manual_seed(0)
    exact = Model()
    with torch.no_grad():
        for parameter in exact.parameters():
            parameter.copy_(torch.randn_like(parameter).to(torch.bfloat16))
    low, other = Model().to(torch.bfloat16), kind(port).to(torch.bfloat16)
    low.load_state_dict(exact.state_dict())
    other.load_state_dict(exact.state_dict())
    record(low, exact, list(range(20)), tmp_path / "modules.npz")
    return {row.module: row for row in summarize(measure(other, str(tmp_path / "modules.npz")))}


def test_the_same_computation(tmp_path: Path) -> None:
    rows = compare("first", tmp_path)
    assert set(rows) == {"layers.*", "layers.*.norm", "layers.*.out"}
    assert all(row.differing == 0 and row.error == row.scale == 1 for row in rows.values())


def test_one_rounding_fewer(tmp_path: Path) -> None:
    row = compare("last", tmp_path)["layers.*.norm"]
    assert row.differing > 0
    assert row.error < 1
    assert row.excess < 1


def test_a_sum_in_low_precision(tmp_path: Path) -> None:
    """Each value is hardly worse, but all of a row are wrong together."""
    row = compare("low", tmp_path)["layers.*.norm"]
    assert 1 < row.error < 1.5
    assert row.scale > 3
    assert row.excess > 1


def test_one_rounding_more(tmp_path: Path) -> None:
    row = compare("twice", tmp_path)["layers.*.norm"]
    assert row.error > 1
    assert row.excess < 1


def test_a_class_without_a_map_of_fused_modules(tmp_path: Path) -> None:
    assert compare("first", tmp_path, Tiny)["layers.*.out"].error == 1


@pytest.mark.parametrize(("port", "original", "expected"), [(0.0, 0.0, 1), (0.1, 0.0, float("inf")), (0.3, 0.2, 1.5)])
def test_errors_in_units_of_the_originals(port: float, original: float, expected: float) -> None:
    assert ratio(port, original) == pytest.approx(expected)
