"""The compiler under changes of its input: same meaning, same port; other meaning, another port or a refusal."""

from __future__ import annotations

import difflib

import pytest

from fusec.diagnostics import FusecError

from .conftest import Convert
from .edits import Edit, flat, read_edits, renamed

SAME = read_edits("same_meaning")
OTHER = read_edits("other_meaning")
TRAPS = read_edits("traps")
REFUSALS = ("FUS3", "FUS4", "FUS5", "FUS6")
"""The codes of what a stage could not follow; a refusal of the command line or a crash is none of them."""


def check(edit: Edit, convert: Convert, unchanged: str) -> None:
    made, code = attempt(edit, convert)
    if made is None:
        (codes,) = edit.expectations("refused") or ("none",)
        assert code in codes.split() if codes else code[:4] in REFUSALS, code
        return
    assert not edit.is_refused or edit.expectations("shows"), f"not refused, but {changes(unchanged, made)}"
    port = flat(made)
    if edit.is_same:
        expected = renamed(unchanged, [(old, new) for old, new in edit.renames if old in unchanged])
        for pair in edit.expectations("same but"):
            old, new = pair.split(" >> ")
            assert old in expected, f"the unchanged port has no {old}"
            expected = expected.replace(old, new)
        assert port == flat(expected), changes(expected, made)
        return
    assert port != flat(unchanged)
    for line in edit.expectations("shows"):
        assert flat(line) in port, f"no {line}, but {changes(unchanged, made)}"
    for line in edit.expectations("lacks"):
        assert flat(line) not in port, changes(unchanged, made)


def attempt(edit: Edit, convert: Convert) -> tuple[str | None, str]:
    """The port and no code, or none and the code of the refusal."""
    try:
        return convert([edit]), ""
    except FusecError as error:
        return None, error.diagnostics[0].code


def changes(old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "unchanged", "port", n=0, lineterm="")
    return "\n".join(lines) or "the port of the unchanged file"


@pytest.mark.parametrize("name", SAME)
def test_same_meaning(name: str, convert: Convert, unchanged: str) -> None:
    check(SAME[name], convert, unchanged)


@pytest.mark.parametrize("name", OTHER)
def test_other_meaning(name: str, convert: Convert, unchanged: str) -> None:
    """No case may give the port that the unchanged file gives."""
    assert not OTHER[name].is_same
    check(OTHER[name], convert, unchanged)


@pytest.mark.parametrize("name", TRAPS)
def test_traps(name: str, convert: Convert, unchanged: str) -> None:
    """What a compiler loses easily: aliases, casts, layouts, attributes set elsewhere, values of the trace."""
    check(TRAPS[name], convert, unchanged)
