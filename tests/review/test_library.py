"""The pattern library as it is listed and shown, with a folder of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusec.diagnostics import FusecError, UsageProblem
from fusec.review.library import list_lines, show_lines

OWN = '''\
"""Doubles [what] it gets.

Example input:

    x + x
"""


def reference(x):
    return 2 * x


def find(ctx, matches, pattern):
    return ()
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "twice.py").write_text(OWN)
    return tmp_path


def test_a_pattern_of_ones_own_stands_in_its_role(own: Path) -> None:
    lines = [line.plain for line in list_lines(own)]
    at = next(i for i, line in enumerate(lines) if "norm/twice" in line)
    assert lines[at].endswith("Doubles [what] it gets.")
    assert "norm" in [line.strip() for line in lines[:at]]
    assert "position" not in [line.strip() for line in lines[:at]]
    assert not any("norm/twice" in line.plain for line in list_lines())


@pytest.mark.parametrize("name", ["norm/twice", "twice"])
def test_one_pattern_in_full(name: str, own: Path) -> None:
    text = "\n".join(line.plain for line in show_lines(name, own))
    assert "Example input:\n\n    x + x" in text
    assert "def reference(x):\n    return 2 * x" in text
    assert text.count("Doubles [what] it gets.") == 1


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(own: Path) -> None:
    with pytest.raises(UsageProblem, match="norm/twice"):
        list(show_lines("norm/twise", own))


def test_a_file_that_is_no_pattern_is_refused_by_name(own: Path) -> None:
    (own / "norm" / "broken.py").write_text('"""Nothing."""\n')
    with pytest.raises(FusecError, match=r"FUS406.*broken\.py"):
        list(list_lines(own))
