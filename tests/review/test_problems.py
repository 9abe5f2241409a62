"""Diagnostics on the terminal: the source line with its caret, and text from outside that stays text."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusec.diagnostics import Diagnostic, Place
from fusec.review.problems import diagnostic_json, diagnostic_text, source_line
from fusec.review.text import printable, styled


def test_the_caret_stands_under_the_column(tmp_path: Path) -> None:
    (tmp_path / "modeling.py").write_text("a = 1\n\tif ü: b(c)\n", encoding="utf-8")
    text = diagnostic_text(
        Diagnostic("FUS302", "b is not known.", Place("modeling.py", 2, 9), hint="Define b."), [tmp_path]
    ).plain
    lines = text.splitlines()
    assert lines[0] == "error[FUS302]: b is not known."
    assert lines[1] == "  --> modeling.py:2:9"
    assert lines[3] == " 2 |  if ü: b(c)"
    assert lines[4].index("^") == lines[3].index("(")
    assert lines[5] == "  hint: Define b."


def test_of_a_very_long_line_the_part_around_the_place_is_shown(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("x" * 1000 + "!" + "y" * 1000)
    lines = diagnostic_text(Diagnostic("FUS102", "No.", Place("config.json", 1, 1001)), [tmp_path]).plain.splitlines()
    assert len(lines[3]) < 200
    assert lines[4].index("^") == lines[3].index("!")


def test_an_installed_package_is_found_by_its_name() -> None:
    line = source_line(Place("rich/console.py", 1))
    assert line is not None
    assert "import" in line


@pytest.mark.parametrize(
    "place",
    [
        Place("absent.py", 1),
        Place("no/such\0file.py", 1),
        Place(".", 1),
        Place("", 1),
        Place("..", 3),
    ],
)
def test_a_file_that_cannot_be_read_is_named_only(place: Place) -> None:
    text = diagnostic_text(Diagnostic("FUS301", "No.", place)).plain
    assert text.splitlines()[0] == "error[FUS301]: No."
    assert "^" not in text


def test_a_line_past_the_end_shows_no_line(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("x\n")
    assert source_line(Place("m.py", 2), [tmp_path]) is None


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("[red]name[/red]", "[red]name[/red]"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\u202eb", "a\\u202eb"),
        ("bell\x07 \x9b31m", "bell\\x07 \\x9b31m"),
        ("naïve 模型 \t", "naïve 模型 \t"),
        ("\ud800", "\\ud800"),
    ],
)
def test_text_from_outside_is_shown_not_obeyed(raw: str, shown: str) -> None:
    assert printable(raw) == shown
    assert styled((raw, "bold")).plain == shown


def test_the_plain_data_of_a_diagnostic() -> None:
    assert diagnostic_json(Diagnostic("FUS101", "No.", Place("a", 2, 3))) == {
        "code": "FUS101",
        "severity": "error",
        "message": "No.",
        "place": {"path": "a", "line": 2, "column": 3},
        "hint": None,
    }
