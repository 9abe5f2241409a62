"""At the engine's default compilation: the engine compiles the port, and the port still computes the original."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fusec.verify import verify_port
from fusec.verify.harness import Session
from fusec.verify.harness.engine import not_compiled
from tests.serve.client import Engines
from tests.serve.configs import FAMILIES, config

pytestmark = pytest.mark.engine


def test_compiled_and_in_bfloat16(convert: Callable[[str], Path], proofs: Session) -> None:
    outcome = verify_port(convert("qwen3"), compile=True, dtype="bfloat16", session=proofs)
    assert outcome.passed, outcome.rows
    assert {"compiled", "bfloat16"} <= {row.name for row in outcome.rows}
