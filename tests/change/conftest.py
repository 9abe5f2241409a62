"""Conversions of the fixture with edits, and one engine session for the proofs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import fusec
from fusec.verify.harness import Session, session

from .edits import MEADOW, Edit, write_fixture

Convert = Callable[[Iterable[Edit]], str]


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    """``convert(edits)``: the port's modeling text. Raises FusecError."""

    def run(edits: Iterable[Edit]) -> str:
        done = fusec.convert(str(write_fixture(tmp_path / "model", edits)), dry_run=True)
        assert done.port is not None
        return done.port.modeling

    return run


@pytest.fixture(scope="module")
def unchanged() -> str:
    """The port of the fixture as it is."""
    done = fusec.convert(str(MEADOW), dry_run=True)
    assert done.port is not None
    return done.port.modeling


@pytest.fixture(scope="session")
def proofs() -> Iterator[Session]:
    with session() as opened:
        yield opened
