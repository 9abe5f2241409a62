"""Every pattern's documented example is true: its input stands in our example model, its output in the port."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import fusec
from fusec.match.patterns import load_patterns
from fusec.match.unit import Pattern

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = {pattern.name: pattern for pattern in load_patterns()}


def examples(pattern: Pattern) -> tuple[str, str]:
    """The *Example input* and *Example output* of a pattern's docstring."""
    documentation = ast.get_docstring(ast.parse(pattern.source.text)) or ""
    blocks = re.findall(r"^Example (input|output):\n\n((?:    .*\n|\n)+)", documentation + "\n", re.MULTILINE)
    found = {side: textwrap.dedent(block) for side, block in blocks}
    return found["input"], found["output"]


def blocks(text: str) -> Iterator[list[str]]:
    """Every block of statements of a file, as trees: how a statement is laid out does not matter."""
    for node in ast.walk(ast.parse(text)):
        for name in ("body", "orelse", "finalbody"):
            held = getattr(node, name, None)
            if isinstance(held, list):
                yield [ast.dump(statement) for statement in held]


def occurs(example: str, text: str) -> bool:
    """Whether the example's statements stand one after the other somewhere in ``text``."""
    wanted = [ast.dump(statement) for statement in ast.parse(example).body]
    starts = ((block, i) for block in blocks(text) for i in range(len(block)))
    return any(block[i : i + len(wanted)] == wanted for block, i in starts)


@pytest.fixture(scope="module")
def converted() -> fusec.Conversion:
    return fusec.convert(str(ROOT / "examples" / "tinymodel"), dry_run=True)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_example_is_what_the_pattern_does(name: str, converted: fusec.Conversion) -> None:
    given, made = examples(PATTERNS[name])
    source, port = converted.checkpoint.modeling.text, converted.port.modeling
    assert occurs(given, source)
    assert occurs(made, port)
    assert not occurs(made, source)
    assert not occurs(given, port)
    assert name in {change.pattern for change in converted.port.changes}


@pytest.mark.parametrize(
    ("example", "found"),
    [
        ("x = f( a )\nreturn x", True),
        ("return x", True),
        ("x = f(b)\nreturn x", False),  # one name differs
        ("y = 0\nreturn x", False),  # not one after the other
        ("return x\nx = f(a)", False),  # in another order
    ],
)
def test_an_example_is_found_as_a_run_of_statements(example: str, found: bool) -> None:
    assert occurs(example, "def g(a):\n    y = 0\n    x = f(\n        a\n    )\n    return x\n") is found
