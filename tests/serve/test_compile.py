"""At the engine's default compilation: the engine compiles the port, and the port still computes the original."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fusec.verify import verify_port
from fusec.verify.harness import Session

pytestmark = pytest.mark.engine


def test_compiled_and_in_bfloat16(convert: Callable[[str], Path], proofs: Session) -> None:
    outcome = verify_port(convert("qwen3"), compile=True, dtype="bfloat16", session=proofs)
    assert outcome.passed, outcome.rows
    assert {"compiled", "bfloat16"} <= {row.name for row in outcome.rows}


def test_a_port_that_the_engine_does_not_compile_is_caught(
    convert: Callable[[str], Path], proofs: Session, tmp_path: Path
) -> None:
    """Without the decorator the engine is slow and at most warns (on the CPU not even that); the check fails."""
    out = tmp_path / "port"
    shutil.copytree(convert("qwen3"), out)
    (file,) = out.glob("*/modeling_*.py")
    text = file.read_text(encoding="utf-8")
    assert text.count("@support_torch_compile\n") == 1
    file.write_text(text.replace("@support_torch_compile\n", ""), encoding="utf-8")
    outcome = verify_port(out, compile=True, session=proofs)
    assert [row.name for row in outcome.rows if not row.passed] == ["compiled"]
