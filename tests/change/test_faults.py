"""Faults put into a port that fusec made: ``verify`` passes the port as it is and catches each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fusec
from fusec.verify import verify_port
from fusec.verify.harness import Session

from .edits import write_fixture

pytestmark = pytest.mark.engine

# The fault -> what is replaced in the port's modeling file, and by what.
FAULTS = {
    "a dropped bias": ("bias=config.attention_bias", "bias=False"),
    "a wrong rotary pairing": (
        "get_rotary(config, self.head_dim)",
        "get_rotary(config, self.head_dim, is_neox_style=False)",
    ),
    "a missing window": ("per_layer_sliding_window=self.sliding_window", "per_layer_sliding_window=None"),
    "a lost logit scale": ("logits = logits * self.config.logit_scale", "pass"),
    "a swapped k and v": (
        "query_states, key_states, value_states = qkv.split",
        "query_states, value_states, key_states = qkv.split",
    ),
    "a missing q norm": (
        "        query_states = self.q_norm(query_states.unflatten(-1, (self.num_heads, self.head_dim))).flatten(-2)\n",
        "",
    ),
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    fusec.convert(str(write_fixture(folder / "model")), folder / "port")
    return folder / "port"


@pytest.fixture
def modeling(port: Path) -> Iterator[Path]:
    """The port's modeling file, as it was again afterwards."""
    (file,) = port.glob("*/modeling_*.py")
    text = file.read_text(encoding="utf-8")
    yield file
    file.write_text(text, encoding="utf-8")


def test_the_port_as_it_is_passes(port: Path, proofs: Session) -> None:
    outcome = verify_port(port, trust_remote_code=True, session=proofs)
    assert outcome.passed, outcome.rows


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault: str, port: Path, modeling: Path, proofs: Session) -> None:
    before, after = FAULTS[fault]
    text = modeling.read_text(encoding="utf-8")
    assert text.count(before) == 1
    modeling.write_text(text.replace(before, after), encoding="utf-8")
    outcome = verify_port(port, trust_remote_code=True, session=proofs)
    assert not outcome.passed
    assert outcome.rows[0].code == "FUS701", outcome.rows  # it ran, and computed something else


def test_an_original_that_differs_from_itself_is_no_reference(tmp_path: Path, proofs: Session) -> None:
    """The bar follows the original's own rounding; what is no rounding must not widen it."""
    fusec.convert(str(write_fixture(tmp_path / "model")), tmp_path / "port")
    kept = tmp_path / "port" / ".fusec" / "source" / "modeling_meadow.py"
    text = kept.read_text(encoding="utf-8")
    before, after = (
        "scaling=self.scaling,",
        'scaling=self.scaling * (2 if self.config._attn_implementation == "sdpa" else 1),',
    )
    assert text.count(before) == 1
    kept.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(fusec.FusecError) as caught:
        verify_port(tmp_path / "port", trust_remote_code=True, session=proofs)
    assert [d.code for d in caught.value.diagnostics] == ["FUS703"]
    assert "no reference" in str(caught.value)
