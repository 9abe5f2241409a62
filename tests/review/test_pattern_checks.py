"""``patterns test`` finds an engine form that computes something else, and one that gives no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusec.match.patterns import load_pattern
from fusec.verify.patterns import check_patterns

HEAD = '''\
"""A norm."""


def find(ctx, matches, pattern):
    return ()


def reference(x, weight, eps):
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps).to(x.dtype) * weight


TRIALS = ({"x": (7, 64), "weight": (64,), "eps": 1e-2}, {"x": (2, 32), "weight": (32,), "eps": 1e-2})


'''
RIGHT = """\
def engine(layers, x, weight, eps):
    norm = layers.RMSNorm(x.shape[-1], eps=eps)
    norm.weight.copy_(weight)
    return norm(x)
"""

ENGINES = {
    "right": RIGHT,
    "other_epsilon": RIGHT.replace("eps=eps", "eps=2 * eps"),
    "no_weight": RIGHT.replace("    norm.weight.copy_(weight)\n", ""),
    "other_shape": RIGHT.replace("norm(x)", "norm(x)[:1]"),
    "not_a_number": RIGHT.replace("norm(x)", "norm(x) * float('nan')"),
    "no_such_symbol": RIGHT.replace("layers.RMSNorm", "layers.RmsNorm"),
    "absent": "",
}


@pytest.mark.engine
def test_only_the_right_form_passes(tmp_path: Path) -> None:
    patterns = []
    for name, engine in ENGINES.items():
        path = tmp_path / f"{name}.py"
        path.write_text(HEAD + engine)
        patterns.append(load_pattern(path, "norm"))
    found = {check.name.removeprefix("norm/"): check.status for check in check_patterns(patterns)}
    assert found == {name: {"right": "passed", "absent": "untested"}.get(name, "failed") for name in ENGINES}
