"""A folder of one's own patterns: it is tried first, and a file in it that is no pattern is refused by its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusec
from fusec.match.patterns import load_patterns, shipped_folder

ROOT = Path(__file__).resolve().parents[2]
TINYMODEL = str(ROOT / "examples" / "tinymodel")


def own(folder: Path, name: str, text: str) -> Path:
    """``folder`` with one pattern file in it."""
    path = folder / name
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return folder


def test_a_pattern_of_ones_own_takes_precedence(tmp_path: Path) -> None:
    folder = own(tmp_path, "norm/zz_own.py", (shipped_folder() / "norm" / "rms_norm.py").read_text(encoding="utf-8"))
    without, with_own = (fusec.convert(TINYMODEL, dry_run=True, patterns=p).port for p in (None, folder))
    assert "norm/rms_norm" in dict(without.patterns)
    assert "norm/zz_own" in dict(with_own.patterns)
    assert "norm/rms_norm" not in dict(with_own.patterns)
    by_shipped, by_own = ({change.pattern for change in port.changes} for port in (without, with_own))
    assert by_own ^ by_shipped == {"norm/rms_norm", "norm/zz_own"}
    assert with_own.modeling == without.modeling


def test_an_own_pattern_that_finds_nothing_changes_nothing(tmp_path: Path) -> None:
    text = '"""Never matches."""\n\n\ndef find(ctx, matches, pattern):\n    return ()\n'
    folder = own(tmp_path, "mlp/never.py", text)
    assert {p.name for p in load_patterns(folder)} - {p.name for p in load_patterns()} == {"mlp/never"}
    without, with_own = (fusec.convert(TINYMODEL, dry_run=True, patterns=p).port for p in (None, folder))
    assert with_own == without


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        pytest.param('"""No find."""\n', 1, "has no attribute 'find'", id="no_find"),
        pytest.param('"""A slip."""\n\nx = = 1\n', 3, "invalid syntax", id="syntax"),
        pytest.param('"""A name."""\n\nfind = undefined\n', 3, "'undefined' is not defined", id="error"),
        pytest.param("def find(ctx, matches, pattern):\n    return ()\n", 1, "docstring", id="no_docstring"),
    ],
)
def test_a_file_that_is_no_pattern_is_refused(tmp_path: Path, text: str, line: int, reason: str) -> None:
    folder = own(tmp_path, "mlp/broken.py", text)
    with pytest.raises(fusec.FusecError) as refusal:
        fusec.convert(TINYMODEL, dry_run=True, patterns=folder)
    (diagnostic,) = refusal.value.diagnostics
    assert diagnostic.code == "FUS406"
    assert (diagnostic.place.path, diagnostic.place.line) == ("patterns/mlp/broken.py", line)
    assert reason in diagnostic.message
    assert diagnostic.hint
