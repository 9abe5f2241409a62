"""Naming the module that differs first, over two models with the same names and different shapes of work."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from fusec.verify.harness.layers import first_divergence, load, recording, save

TOKENS, WIDTH, HEADS = 6, 8, 2


class Original(nn.Module):
    """Batch first, heads before tokens, a residual stream that is added at once."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.q = nn.Linear(WIDTH, WIDTH)
        self.k = nn.Linear(WIDTH, WIDTH)
        self.head_norm = nn.LayerNorm(WIDTH // HEADS)
        self.act = nn.SiLU()
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        heads = self.head_norm(self.q(y).view(1, TOKENS, HEADS, -1).transpose(1, 2))
        q = heads.transpose(1, 2).flatten(2)
        return x + self.out(self.act(q) * self.k(y))


class Port(nn.Module):
    """Flat tokens, one fused projection, an activation that does more, a residual stream that travels along."""

    def __init__(self, original: Original) -> None:
        super().__init__()
        self.norm, self.head_norm, self.out = original.norm, original.head_norm, original.out
        self.qk = nn.Linear(WIDTH, 2 * WIDTH)
        with torch.no_grad():
            self.qk.weight.copy_(torch.cat([original.q.weight, original.k.weight]))
            self.qk.bias.copy_(torch.cat([original.q.bias, original.k.bias]))
        self.act = nn.Identity()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k = self.qk(self.norm(x)).chunk(2, -1)
        q = self.head_norm(q.reshape(-1, WIDTH // HEADS)).view(TOKENS, -1)
        return self.out(self.act(nn.functional.silu(q) * k)), x


class Wrapped(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> object:
        return self.layer(x)


Values = dict[str, list[np.ndarray]]


@pytest.fixture
def record() -> Callable[[Callable[[Port], None] | None], tuple[Values, Values]]:
    def run(fault: Callable[[Port], None] | None = None) -> tuple[Values, Values]:
        torch.manual_seed(0)
        original = Original()
        with torch.no_grad():
            for parameter in original.parameters():
                parameter.normal_()
        x = torch.randn(TOKENS, WIDTH)
        port = Port(original)
        whole = Wrapped(original)
        with recording(whole, TOKENS) as reference, torch.no_grad():
            whole(x[None])
        if fault:
            fault(port)
        other = Wrapped(port)
        with recording(other, TOKENS) as recorded, torch.no_grad():
            other(x)
        return reference.values, recorded.values

    return run


def found(values: tuple[Values, Values]) -> tuple[str | None, str]:
    divergence = first_divergence(*values, {"qk": ["q", "k"]})
    return divergence.module, divergence.side


def test_models_that_agree(record: Callable[..., tuple[Values, Values]]) -> None:
    reference, port = record()
    divergence = first_divergence(reference, port, {"qk": ["q", "k"]})
    assert divergence.module is None
    # norm, head_norm and out with input and output, the fused projection's output, the layer's output
    assert divergence.compared == 8


def test_a_wrong_part_of_a_fused_projection(record: Callable[..., tuple[Values, Values]]) -> None:
    def fault(port: Port) -> None:
        port.qk.bias.data[WIDTH:] = 0

    assert found(record(fault)) == ("layer.qk", "output")


def test_a_wrong_norm_over_heads(record: Callable[..., tuple[Values, Values]]) -> None:
    def fault(port: Port) -> None:
        port.head_norm = nn.LayerNorm(WIDTH // HEADS)

    assert found(record(fault)) == ("layer.head_norm", "output")


def test_what_happens_between_modules_shows_in_an_input(record: Callable[..., tuple[Values, Values]]) -> None:
    def fault(port: Port) -> None:
        port.act = nn.Tanh()

    assert found(record(fault)) == ("layer.out", "input")


def test_a_lost_residual(record: Callable[..., tuple[Values, Values]]) -> None:
    def fault(port: Port) -> None:
        port.register_forward_hook(lambda module, args, output: (output[0], torch.zeros_like(output[1])))

    assert found(record(fault)) == ("layer", "output")


def test_a_part_that_is_only_called_the_same(record: Callable[..., tuple[Values, Values]]) -> None:
    """A part may compute twice as much where what follows takes half of it: the module around it agrees."""
    reference, port = record()
    port["layer.norm:output"] = [port["layer.norm:output"][0] * 2]
    assert found((reference, port)) == (None, "")


def test_recordings_survive_a_file(record: Callable[..., tuple[Values, Values]], tmp_path: object) -> None:
    reference, port = record()
    for name, values in (("a", reference), ("b", port)):
        save(f"{tmp_path}/{name}.npz", values)
        back = load(f"{tmp_path}/{name}.npz")
        assert list(back) == list(values)
        assert all(np.array_equal(x, y) for key in back for x, y in zip(back[key], values[key], strict=True))
