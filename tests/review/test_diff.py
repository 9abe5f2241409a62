"""The labelled diff: hunks per class, labels from overlapping changes, filters, three ways to print."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fusec.diagnostics import UsageProblem
from fusec.review.diff import MODULE, compare
from fusec.review.diff_print import class_lines, stat_lines, unified_text
from fusec.review.open import moved
from fusec.rewrite.types import Change

SOURCE = """\
import torch
from torch import nn


def helper(x):
    return -x


class Norm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


class Block(nn.Module):
    def __init__(self):
        self.q = nn.Linear(4, 4)
        self.k = nn.Linear(4, 4)
        self.a = 1
        self.b = 2
        self.c = 3
        self.d = 4
        self.e = 5
        self.f = 6
        self.g = 7
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.q(x)
"""

PORT = """\
from torch import nn


class Block(nn.Module):
    def __init__(self):
        self.qk = Packed(4, [4, 4])
        self.a = 1
        self.b = 2
        self.c = 3
        self.d = 4
        self.e = 5
        self.f = 6
        self.g = 7

    def forward(self, x):
        return self.q(x)


def fresh():
    return 0
"""

CHANGES = (
    Change("helper", "dropped", "nothing calls it"),
    Change("Norm", "rewritten", "replaced by the engine's norm", "norm/rms", (9, 11)),
    Change("Block", "rewritten", "q and k packed", "linear/qk", (16, 17), (6, 6)),
    Change("Block", "kept", "plain constants", None, (18, 24), (7, 13)),
    Change("Block", "dropped", "dropout does nothing at inference", None, (25, 25)),
)


def made(**filters: str):
    return compare(SOURCE, PORT, CHANGES, source_name="a/modeling.py", port_name="b/modeling.py", **filters)


def test_classes_are_paired_by_name_and_hunks_hold_both_sides_numbers() -> None:
    diff = made()
    assert [(c.name, c.only, c.removed, c.added) for c in diff.classes] == [
        (MODULE, None, 1, 0),
        ("helper", "source", 2, 0),
        ("Norm", "source", 3, 0),
        ("Block", None, 3, 1),
        ("fresh", "port", 0, 2),
    ]
    first, second = diff.classes[3].hunks
    assert [(line.mark, line.source, line.port) for line in first.lines[:5]] == [
        (" ", 14, 4),
        (" ", 15, 5),
        ("-", 16, None),
        ("-", 17, None),
        ("+", None, 6),
    ]
    assert first.lines[2].text == SOURCE.splitlines()[15]
    assert first.lines[4].text == PORT.splitlines()[5]
    assert [line.source for line in second.lines if line.mark == "-"] == [25]


def test_a_label_is_every_change_that_overlaps_the_changed_lines_and_no_other() -> None:
    by_class = {c.name: c.hunks for c in made().classes}
    assert [[(label.kind, label.pattern) for label in hunk.labels] for hunk in by_class["Block"]] == [
        [("rewritten", "linear/qk")],
        [("dropped", None)],
    ]
    assert by_class["Norm"][0].patterns == ("norm/rms",)
    assert by_class["fresh"][0].labels == ()


@pytest.mark.parametrize("name", ["linear/qk", "qk"])
def test_one_pattern(name: str) -> None:
    diff = made(pattern=name)
    assert [(c.name, len(c.hunks)) for c in diff.classes] == [("Block", 1)]
    assert all("linear/qk" in hunk.patterns for hunk in diff.unified)
    assert diff.unified


def test_one_class() -> None:
    diff = made(cls="Block")
    assert [c.name for c in diff.classes] == ["Block"]
    assert not any("rsqrt" in line.text and "Norm" in hunk.patterns for hunk in diff.unified for line in hunk.lines)


def test_a_name_that_occurs_nowhere_is_a_usage_problem_that_lists_the_names() -> None:
    with pytest.raises(UsageProblem, match="Block"):
        made(cls="Blok")
    with pytest.raises(UsageProblem, match="linear/qk, norm/rms"):
        made(pattern="norm/layer")


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
def test_the_unified_form_is_a_patch(tmp_path: Path) -> None:
    source = "\tx = 1 \n\n\n" + SOURCE.replace("self.c = 3", "self.c = 3  \t")
    (tmp_path / "f.py").write_text("if True:\n" + source)
    diff = compare("if True:\n" + source, PORT, (), source_name="f.py", port_name="f.py")
    subprocess.run(["patch", "f.py"], cwd=tmp_path, input=unified_text(diff), text=True, check=True)
    assert (tmp_path / "f.py").read_text() == PORT


def test_equal_files_have_no_hunks() -> None:
    diff = compare(SOURCE, SOURCE, CHANGES, source_name="a", port_name="b")
    assert diff.classes == ()
    assert unified_text(diff) == ""


def test_the_default_form_names_the_pattern_over_its_hunk_and_says_what_it_did() -> None:
    lines = [line.plain for line in class_lines(made())]
    at = lines.index("-        self.q = nn.Linear(4, 4)")
    assert lines[at - 4].startswith("@@") or lines[at - 4].lstrip("\n").startswith("@@")
    assert "linear/qk" in lines[at - 4]
    assert lines[at - 3] == "   linear/qk: q and k packed"


def test_the_counts_add_up() -> None:
    lines = [line.plain for line in stat_lines(made())]
    assert any(line.startswith(" Block") and "1+" in line and "3-" in line and "linear/qk" in line for line in lines)
    assert lines[-1] == " 5 classes and functions changed, 3 lines added, 9 removed"


def test_lines_are_counted_as_the_parser_counts_them() -> None:
    source = 'class A:\n    """a\x0cb"""\n    x = 1\n    y = 2\n'
    diff = compare(
        source,
        source.replace("y = 2", "y = 3"),
        (Change("A", "rewritten", "y", "head/y", (4, 4), (4, 4)),),
        source_name="a",
        port_name="b",
    )
    assert diff.classes[0].hunks[0].patterns == ("head/y",)


def test_an_edited_port_keeps_its_labels_and_says_what_was_edited() -> None:
    edited = "# a line of my own\n" + PORT.replace("self.d = 4", "self.d = 44")
    changes = moved(CHANGES, PORT, edited)
    assert [c.port_lines for c in changes if c.pattern == "linear/qk"] == [(7, 7)]
    diff = compare(SOURCE, edited, changes, source_name="a", port_name="b")
    labels = {label.what for c in diff.classes for hunk in c.hunks for label in hunk.labels}
    assert "edited after the conversion" in labels
    assert "q and k packed" in labels


def test_a_hunk_with_two_reasons_is_split_between_them_and_loses_no_line() -> None:
    old = "class A:\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    e = 5\n    f = 6\n"
    new = old.replace("b = 2", "b = 20").replace("d = 4", "d = 40").replace("f = 6", "f = 60")
    changes = (
        Change("A", "rewritten", "b", "head/b", (3, 3)),
        Change("A", "rewritten", "d", "head/d", None, (5, 5)),
        Change("A", "rewritten", "f", "head/d", (7, 7)),
    )
    diff = compare(old, new, changes, source_name="a", port_name="b")
    hunks = diff.classes[0].hunks
    assert [hunk.patterns for hunk in hunks] == [("head/b",), ("head/d",), ("head/d",)]
    assert tuple(line for hunk in hunks for line in hunk.lines) == diff.unified[0].lines


def test_lines_that_no_record_covers_stand_under_the_patterns_of_their_class() -> None:
    source = SOURCE.replace("self.a = 1", "self.a = 11")
    changes = tuple(change for change in CHANGES if change.kind != "kept")
    (first, *_) = (
        compare(source, PORT.replace("self.c = 3", "self.c = 4"), changes, source_name="a", port_name="b")
        .classes[3]
        .hunks
    )
    assert first.patterns == ("linear/qk",)
