"""Two pipeline stages, in two processes, compute what one process computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.client import Engines
from tests.serve.configs import FAMILIES, config

pytestmark = pytest.mark.engine

# The bar of the issue; a stage's own arithmetic is that of one process, so that a difference means other inputs.
BAR = 1e-5


@pytest.mark.parametrize("family", ["smollm3", "seed_oss"])
def test_two_stages_give_the_hidden_states_of_one(
    family: str, convert: Callable[[str], Path], engines: Engines, tmp_path: Path
) -> None:
    """Rotary on some layers, a window on the others, and a tied head; biases and a head of its own."""
    model = str(tmp_path / "model" / "tiny")
    content = config(family, **FAMILIES[family])
    engines.do("tiny", folder=model, config=content, seed=3)
    port = convert(family)
    one, two = (
        engines.do("stages", port, model=model, options={"pipeline_parallel_size": stages}) for stages in (1, 2)
    )

    assert {name.partition(".")[0] for name in one["served_by"] + two["served_by"]} == {f"{family}_port"}
    check_parts(two["stages"], tied=content["tie_word_embeddings"])
    assert len({stage["pid"] for stage in two["stages"]}) == 2

    expected = arrays(one["work"], "stage0")
    first, last = arrays(two["work"], "stage0"), arrays(two["work"], "stage1")
    assert not first.keys() & last.keys()
    assert expected.keys() == first.keys() | last.keys()
    for place, value in {**first, **last}.items():
        assert value.shape == expected[place].shape
        assert np.abs(value - expected[place]).max() <= BAR, place

    alone, shared = arrays(one["work"], "logprobs"), arrays(two["work"], "logprobs")
    assert alone.keys() == shared.keys() == {"0", "1"}
    for number, value in shared.items():
        assert np.abs(value - alone[number]).max() <= BAR
        assert value.std(axis=-1).mean() > 1  # a distribution that a wrong state would change


def check_parts(stages: list[dict[str, Any]], tied: bool) -> None:
    """Each stage built its own parts alone; a tied head needs the embedding where the head is."""
    first, last = sorted(stages, key=lambda stage: int(stage["stage"]))
    assert first["parts"] == ["embed_tokens", "layers.0", "layers.1"]
    assert last["parts"] == [*(["embed_tokens"] if tied else []), "layers.2", "layers.3", "norm", "lm_head"]
    assert last["tied"] == tied


def arrays(work: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(work / f"{name}.npz") as stored:
        return {key: stored[key] for key in stored.files}
