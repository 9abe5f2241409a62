"""Facts to emit: a port of a small decoder that was written for these tests, as the rewrite stage would hand it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fusec.configure.types import Config
from fusec.plan.types import FoldedCheck, ParallelPlan, Placement
from fusec.read.types import Checkpoint, Source
from fusec.rewrite.types import Change, Port

TOY = (Path(__file__).parent / "fixtures" / "toy.py").read_text(encoding="utf-8")


class Library:
    version = "5.19.0"

    def find(self, module: str) -> Source | None:
        return None


@dataclass(frozen=True)
class Facts:
    """The arguments of ``emit_package``, but for the folder."""

    port: Port
    checkpoint: Checkpoint
    config: Config
    plan: ParallelPlan

    def __iter__(self):
        return iter((self.port, self.checkpoint, self.config, self.plan))


def make_facts(
    architecture: str = "ToyForCausalLM",
    model_type: str = "toy",
    checks: tuple[FoldedCheck, ...] = (),
    **changes: Any,
) -> Facts:
    """Facts of a conversion; ``changes`` are fields of the checkpoint."""
    port = Port(
        architecture=architecture,
        model_type=model_type,
        modeling=TOY.replace("ToyForCausalLM", architecture),
        changes=(
            Change("ToyLayer", "rewritten", "q, k and v in one projection", "linear/qkv", (20, 24), (25, 27)),
            Change("ToyModel", "kept", "the loop over layers"),
            Change("ToyModel", "dropped", "the cache: the engine has its own", None, (40, 40), None),
        ),
        checks=checks,
        patterns=(("linear/qkv", "ab" * 32),),
    )
    fields: dict[str, Any] = {
        "model": model_type,
        "architecture": architecture,
        "model_type": model_type,
        "config": {"model_type": model_type, "architectures": [architecture], "hidden_act": "silu"},
        "modeling": Source("models/toy/modeling_toy.py", "models.toy.modeling_toy", "A = 1\n", "transformers 5.19.0"),
        "configuration": Source("models/toy/configuration_toy.py", "models.toy.configuration_toy", "B = 1\n", "file"),
        "library": Library(),
    }
    plan = ParallelPlan(
        placements=(Placement("model.layers.*.qkv_proj", "qkv", "heads", ("q_proj", "k_proj", "v_proj")),),
        tp_sizes=(1, 2),
        tp_limits=("2 heads cannot be split over 4 ranks.",),
        pp_max=2,
    )
    return Facts(port, Checkpoint(**fields | changes), Config("ToyConfig", "models.toy", {}, {}), plan)


@pytest.fixture(scope="session")
def facts() -> Callable[..., Facts]:
    return make_facts
