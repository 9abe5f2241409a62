"""The commands at work on our example model: what they print, and that the same input gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_convert_prints_what_became_of_each_class_and_the_plan(
    fusec: Callable[..., Any], checkpoint: Callable[..., Path]
) -> None:
    checkpoint()
    done = fusec("convert", "model", "-o", "out")
    assert done.status == 0, done.err
    for part in ("TinyModelAttention", "TinyModelMLP", "TinyModelRMSNorm", "Parallel plan", "tensor-parallel sizes"):
        assert part in done.out
    assert "\x1b" not in done.out
    assert {"out/fusec.lock", "out/pyproject.toml", "out/README.md"} <= done.made


def test_quiet_prints_nothing(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    done = fusec("convert", "model", "-o", "out", "--quiet")
    assert (done.status, done.out, done.err) == (0, "", "")


def test_json_is_the_report(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    done = fusec("convert", "model", "-o", "out", "--json")
    assert (done.status, done.err) == (0, "")
    report = json.loads(done.out)
    assert report["ok"] is True
    assert report["architecture"] == "TinyModelForCausalLM"
    assert 2 in report["plan"]["tp_sizes"]
    assert 3 not in report["plan"]["tp_sizes"]
    assert {"read", "configure", "trace", "match", "plan", "rewrite", "emit"} <= set(report["timings"])
    assert set(report["files"]) == {
        name.removeprefix("out/") for name in done.made if (Path(name).suffix or "lock" in name)
    } & set(report["files"])
    used = {change["pattern"] for change in report["changes"] if change["pattern"]}
    assert used
    assert used <= set(report["patterns"])


def test_a_dry_run_says_the_same_and_writes_nothing(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    done = fusec("convert", "model", "--dry-run")
    assert done.status == 0, done.err
    assert "tensor-parallel sizes" in done.out
    assert not done.made


def test_each_stage_can_be_printed(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    printed = {}
    for stage in ("read", "configure", "trace", "match", "plan", "rewrite"):
        done = fusec("convert", "model", "--stop-after", stage)
        assert done.status == 0, done.err
        assert not done.made
        printed[stage] = done.out
    # The config that was read is printed as the model class sees it: these two are one view.
    assert printed.pop("read") == printed["configure"]
    assert len(set(printed.values())) == len(printed)
    assert "sliding_window" in printed["configure"]
    assert "class TinyModelForCausalLM" in printed["rewrite"]


def test_two_runs_give_the_same_bytes_whatever_the_folders_are_called(
    fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint()
    assert fusec("convert", "model", "-o", "a", env={"PYTHONHASHSEED": "1"}).status == 0
    assert fusec("convert", tmp_path / "model", "-o", tmp_path / "deep" / "b", env={"PYTHONHASHSEED": "2"}).status == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "deep" / "b")
    assert not any(str(tmp_path).encode() in content for content in contents(tmp_path / "a").values())


def test_force_replaces_a_package(fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint()
    assert fusec("convert", "model", "-o", "out").status == 0
    first = contents(tmp_path / "out")
    (tmp_path / "out" / "stale.txt").write_text("old")
    assert fusec("convert", "model", "-o", "out", "--force").status == 0
    assert contents(tmp_path / "out") == first


def test_diff_of_a_package_and_of_a_model_agree(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    assert fusec("convert", "model", "-o", "out").status == 0
    of_package, of_model = fusec("diff", "out"), fusec("diff", "model")
    assert of_package.status == of_model.status == 0
    assert of_package.out.splitlines()[2:] == of_model.out.splitlines()[2:]
    assert "== TinyModelAttention" in of_package.out


def test_diff_shows_one_class_one_pattern_or_counts(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    assert fusec("convert", "model", "-o", "out").status == 0
    one = fusec("diff", "out", "--class", "TinyModelMLP")
    assert "== TinyModelMLP" in one.out
    assert "== TinyModelAttention" not in one.out
    stat = fusec("diff", "out", "--stat")
    assert "TinyModelMLP" in stat.out
    assert stat.out.splitlines()[-1].endswith("removed")
    used = json.loads(fusec("convert", "model", "--dry-run", "--json").out)["patterns"]
    for pattern in [*used][:2]:
        done = fusec("diff", "out", "--pattern", pattern)
        assert done.status == 0, done.err
        assert pattern in done.out
    wrong = fusec("diff", "out", "--class", "Nobody")
    assert (wrong.status, wrong.out) == (2, "")
    assert "TinyModelMLP" in wrong.err


def test_patterns_are_listed_and_shown(fusec: Callable[..., Any]) -> None:
    listed = fusec("patterns")
    assert listed.status == 0, listed.err
    assert fusec("patterns", "list").out == listed.out
    names = [word for line in listed.out.splitlines() for word in line.split()[:1] if "/" in word]
    assert any(name.startswith("norm/") for name in names)
    shown = fusec("patterns", "show", names[0])
    assert "Example input" in shown.out
    assert "Example output" in shown.out
    absent = fusec("patterns", "show", "norm/absent")
    assert absent.status == 2
    assert absent.codes


def test_doctor_says_what_is_installed(fusec: Callable[..., Any]) -> None:
    done = fusec("doctor")
    for part in ("fusec", "transformers", "vllm", "torch"):
        assert part in done.out
    report = json.loads(fusec("doctor", "--json").out)
    assert report["ok"] is (done.status == 0)
