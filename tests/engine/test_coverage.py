from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations
from typing import Any

import pytest

from tests.engine.coverage import (
    AXES,
    FAMILIES,
    MAX_POSITIONS,
    WINDOW,
    Case,
    cases,
    head_dim,
    levels_of,
    pairs_of,
    valid_pairs,
)

# Head sizes that the engine's CPU attention has.
CPU_HEAD_SIZES = {32, 64, 128}

AUTO_CONFIG = """
import json, pathlib, sys, tempfile, warnings
from transformers import AutoConfig, AutoModelForCausalLM
answers = []
for config in json.load(sys.stdin):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        try:
            read = AutoConfig.from_pretrained(folder)
            AutoModelForCausalLM.from_config(read)  # the modeling code takes it too
            answers.append(read.to_dict() | {"class": type(read).__name__})
        except Exception as problem:
            answers.append(f"{type(problem).__name__}: {problem}")
json.dump(answers, sys.stdout)
"""


def ask(configs: list[dict[str, Any]]) -> list[Any]:
    """What AutoConfig makes of each config, as a dict, or its refusal as text."""
    run = subprocess.run(
        [sys.executable, "-c", AUTO_CONFIG], input=json.dumps(configs), capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    answers: list[Any] = json.loads(run.stdout)
    return answers


@pytest.fixture(scope="module")
def all_cases() -> list[Case]:
    return cases()


@pytest.fixture(scope="module")
def read(all_cases: list[Case]) -> list[Any]:
    return ask([case.config for case in all_cases])


def test_every_valid_pair_is_in_a_case(all_cases: list[Case]) -> None:
    covered = set().union(*(pairs_of(case.levels) for case in all_cases))
    assert covered == valid_pairs()


def test_every_case_is_of_levels_that_its_family_allows(all_cases: list[Case]) -> None:
    for case in all_cases:
        allowed = levels_of(case.model_type)
        assert case.levels.keys() == allowed.keys() | {"family"}
        assert all(case.levels[axis] in levels for axis, levels in allowed.items())


def test_there_are_enough_and_not_many_more_than_pairs_force(all_cases: list[Case]) -> None:
    assert len(all_cases) >= 40
    # Within one family, two axes force a case for each pair of their levels that no other family has.
    forced = 0
    for model_type in FAMILIES:
        own = {**levels_of(model_type), "family": (model_type,)}
        forced += max(
            sum(
                not any(other != model_type and _allows(other, pair) for other in FAMILIES)
                for pair in ({one: a, two: b} for a in own[one] for b in own[two])
            )
            for one, two in combinations(sorted(own), 2)
        )
    assert len(all_cases) <= 1.25 * forced


def _allows(model_type: str, pair: dict[str, str]) -> bool:
    own = {**levels_of(model_type), "family": (model_type,)}
    return all(level in own.get(axis, ()) for axis, level in pair.items())


def test_names_tell_cases_apart_and_do_not_change(all_cases: list[Case]) -> None:
    names = [case.name for case in all_cases]
    assert len(set(names)) == len(names)
    assert names == [case.name for case in cases()]


def test_cases_share_nothing(all_cases: list[Case]) -> None:
    for one, other in combinations(all_cases, 2):
        theirs = [{id(v) for v in c.config.values() if isinstance(v, list | dict)} for c in (one, other)]
        assert not theirs[0] & theirs[1]
    shared = {id(value) for levels in AXES.values() for level in levels.values() for value in level.values()}
    lists = [value for case in all_cases for value in case.config.values() if isinstance(value, list | dict)]
    assert not shared & {id(value) for value in lists}


def test_auto_config_takes_every_case(all_cases: list[Case], read: list[Any]) -> None:
    refused = {case.name: answer for case, answer in zip(all_cases, read, strict=True) if isinstance(answer, str)}
    assert not refused
    expected = {case.config["architectures"][0].removesuffix("ForCausalLM") + "Config" for case in all_cases}
    assert {answer["class"] for answer in read} == expected


def test_levels_mean_what_they_say(all_cases: list[Case], read: list[Any]) -> None:
    """The config that a model sees has the layout, window and rope type that the case is named after."""
    for case, config in zip(all_cases, read, strict=True):
        levels = case.levels
        kv_heads = {"grouped": 2, "one_kv": 1, "all": config["num_attention_heads"]}[levels["heads"]]
        assert config["num_key_value_heads"] == kv_heads, case.name
        assert (config["hidden_size"] % config["num_attention_heads"] != 0) == (levels["head_dim"] == "indivisible")
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        assert size == head_dim(case.config)
        assert size in CPU_HEAD_SIZES, case.name
        if levels["rope"] != "old":
            assert config["rope_parameters"]["rope_type"] == levels["rope"], case.name
        assert config["tie_word_embeddings"] == (levels["tied"] == "true")
        layer_types = config.get("layer_types") or []
        sliding = [kind == "sliding_attention" for kind in layer_types]
        match levels.get("window"):
            case "mixed":
                assert sliding == [True, False, True, False]
            case "sliding":
                assert sliding == [True] * 4
            case "full" | "off":
                assert sliding == [False] * 4
            case "derived":  # one family's windows are on the layers without rotary, the others' past a first layer
                without_rope = config.get("no_rope_layers")
                assert sliding == ([not rope for rope in without_rope] if without_rope else [False, True, True, True])
        if levels.get("window") in ("mixed", "sliding", "full", "derived", "everywhere"):
            assert config["sliding_window"] == WINDOW


def test_prompts_pass_the_window_and_stay_on_one_side_of_a_rope_length(all_cases: list[Case]) -> None:
    for case in all_cases:
        assert min(case.prompt_lengths) > WINDOW
        assert max(case.prompt_lengths) < case.max_model_len <= MAX_POSITIONS
        rope = case.config.get("rope_parameters") or {}
        if rope.get("rope_type") == "longrope":
            border = rope["original_max_position_embeddings"]
            assert min(case.prompt_lengths) > border or case.max_model_len <= border


def test_levels_that_a_family_lacks_are_lacking_for_a_reason() -> None:
    """The levels left out of FAMILIES are refused by the class, or by its modeling code."""
    base = next(case.config for case in cases() if case.model_type == "llama")
    indivisible = base | AXES["head_dim"]["indivisible"]
    nulls = [
        next(c.config for c in cases() if c.model_type == model_type and c.levels["head_dim"] == "absent")
        | AXES["head_dim"]["null"]
        for model_type in ("qwen2", "qwen3", "smollm3")
    ]
    answers = ask([indivisible, *nulls])
    assert all(isinstance(answer, str) for answer in answers), answers
