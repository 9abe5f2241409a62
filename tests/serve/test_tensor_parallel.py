"""Tensor parallelism: two ranks compute what the original does; a size that cannot work is refused with the reason."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fusec
from fusec.diagnostics import UsageProblem
from fusec.verify import verify_port
from fusec.verify.harness import Session
from fusec.verify.harness.shrink import shrink
from tests.serve.client import Engines, JobFailed
from tests.serve.configs import FAMILIES, Config, config, folder_with

# Per rank: one kv head (llama and smollm3 have one in all, so both ranks hold it), or more.
ONE_KV_HEAD = {"llama", "smollm3"}

# What cannot be dealt out to so many ranks: the config, the size, and what the refusal says.
IMPOSSIBLE: dict[str, tuple[Config, int, str]] = {
    "heads": ({"intermediate_size": 252}, 3, "4 query heads cannot be dealt out to 3"),
    "kv heads": (
        {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 192},
        2,
        "3 key/value heads cannot be dealt out to 2",
    ),
    "intermediate size": ({"intermediate_size": 255}, 2, "intermediate size 255 cannot be dealt out to 2"),
}


@pytest.mark.engine
@pytest.mark.parametrize("family", FAMILIES)
def test_two_ranks(family: str, convert: Callable[[str], Path], proofs: Session) -> None:
    tiny = shrink(config(family, **FAMILIES[family]))
    assert (tiny["num_key_value_heads"] < 2) == (family in ONE_KV_HEAD)
    outcome = verify_port(convert(family), tp=2, session=proofs)
    assert outcome.passed, outcome.rows
    assert "tensor parallel 2" in [row.name for row in outcome.rows]


@pytest.fixture(scope="module")
def impossible(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """The model's folder and its port, by the case's name."""
    root = tmp_path_factory.mktemp("impossible")
    made: dict[str, tuple[Path, Path]] = {}

    def get(case: str) -> tuple[Path, Path]:
        if case not in made:
            model = folder_with(root / f"{case}-model", config("llama", **IMPOSSIBLE[case][0]))
            fusec.convert(str(model), root / case)
            made[case] = model, root / case
        return made[case]

    return get


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_the_plan_and_verify_say_why_not(case: str, impossible: Callable[[str], tuple[Path, Path]]) -> None:
    _, size, reason = IMPOSSIBLE[case]
    model, out = impossible(case)
    plan = fusec.convert(str(model), dry_run=True).plan
    assert plan is not None
    assert 1 in plan.tp_sizes
    assert size not in plan.tp_sizes
    assert any(reason in sentence for sentence in plan.tp_limits)
    with pytest.raises(UsageProblem, match=f"cannot run over {size} ranks") as refused:
        verify_port(out, tp=size)
    assert reason in str(refused.value)


def test_the_commands_say_so_too(impossible: Callable[[str], tuple[Path, Path]]) -> None:
    model, out = impossible("kv heads")
    _, size, reason = IMPOSSIBLE["kv heads"]
    shown = command("convert", str(model), "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert reason in shown.stdout
    refused = command("verify", str(out), "--tp", str(size))
    assert refused.returncode == 2
    assert reason in refused.stderr


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "fusec", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("heads", r"attention heads \(4\) must be divisible by tensor parallel size \(3\)"),  # the engine's own
        ("kv heads", r"ValueError: tensor_parallel_size 2 cannot work: 3 key/value heads cannot be dealt out to it"),
        ("intermediate size", r"ValueError: tensor_parallel_size 2 cannot work: 255 .*cannot be dealt out to it"),
    ],
)
def test_the_engine_says_why_not(
    case: str, sentence: str, impossible: Callable[[str], tuple[Path, Path]], engines: Engines
) -> None:
    """The reason is in the log: the parent of a worker that fails only says that one did."""
    model, out = impossible(case)
    options = {"tensor_parallel_size": IMPOSSIBLE[case][1], "load_format": "dummy"}
    with pytest.raises(JobFailed) as refused:
        engines.do("generate", out, model=str(model), options=options)
    assert re.search(sentence, refused.value.log), refused.value.log[-2000:]
