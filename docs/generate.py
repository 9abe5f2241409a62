"""Writes what is generated: two pages of ``docs/``, the worked example in the README, ``patterns/families.json``.

Run it with ``make docs`` after a change of what they show. A test runs ``pages`` and
compares. Blocks in the README stand between ``<!-- generated: NAME -->`` and
``<!-- end -->``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import fusec
from fusec.diagnostics import CODES
from fusec.match.patterns import load_patterns

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/tinymodel"

# The families whose conversion the project vouches for, by model type.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "seed_oss")

GROUPS = {
    "0": "The command line and the file system",
    "1": "Reading the checkpoint and the modeling source",
    "2": "The configuration",
    "3": "Tracing",
    "4": "Matching",
    "5": "Planning",
    "6": "Emitting the package",
    "7": "Verification",
    "8": "The engine's interface",
}


def diagnostics_page() -> str:
    """The page of all codes, by stage."""
    lines = [
        "<!-- Written by docs/generate.py from fusec/diagnostics.py. -->",
        "# Diagnostics",
        "",
        "Everything that fusec refuses, it refuses with one of these codes, a sentence, a place in a source file where",
        "there is one, and a hint. Where one of them is an error, nothing is written. A published code keeps its",
        "meaning.",
    ]
    for digit, title in GROUPS.items():
        codes = {code: meaning for code, meaning in CODES.items() if code.removeprefix("FUS").startswith(digit)}
        if codes:
            lines += ["", f"## {title}", "", "| code | meaning |", "| --- | --- |"]
            lines += [f"| `{code}` | {meaning} |" for code, meaning in codes.items()]
    return "\n".join(lines) + "\n"


def families_table() -> str:
    """Pattern name -> the families whose default config is converted with it, as JSON."""
    served: dict[str, list[str]] = {}
    for family in FAMILIES:
        port = fusec.convert(family, dry_run=True).port
        for pattern, _ in port.patterns if port else ():
            served.setdefault(pattern, []).append(family)
    return json.dumps(dict(sorted(served.items())), indent=2) + "\n"


def patterns_page() -> str:
    """The page of all patterns, from their files: what each does, its example, its reference computation."""
    lines = [
        "<!-- Written by docs/generate.py from patterns/. -->",
        "# Patterns",
        "",
        "What fusec can rewrite, and into what, in the order in which patterns are applied. Each is one file under",
        "`patterns/`; `fusec patterns show NAME` prints it, `fusec patterns test` runs its reference against the",
        "engine's layer. The examples are of the model in `examples/tinymodel`.",
    ]
    for pattern in load_patterns():
        tree = ast.parse(pattern.source.text)
        text, _, example = (ast.get_docstring(tree) or "").partition("\n\nExample input:\n\n")
        given, _, made = example.partition("\n\nExample output:\n\n")
        reference = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "reference")
        lines += ["", f"## {pattern.name}", "", text]
        for title, code in (
            ("Example input", textwrap.dedent(given)),
            ("Example output", textwrap.dedent(made)),
            ("Reference", ast.get_source_segment(pattern.source.text, reference) or ""),
        ):
            lines += ["", f"{title}:", "", f"```python\n{code.rstrip()}\n```"]
    return "\n".join(lines) + "\n"


def readme_blocks(readme: str) -> Iterator[tuple[str, str]]:
    """Name and body of each generated block of the README."""
    for match in re.finditer(r"<!-- generated: (.+?) -->\n(.*?)<!-- end -->", readme, re.DOTALL):
        yield match[1], match[2]


def example_blocks(*, verify: bool = False) -> dict[str, str]:
    """The worked example's blocks by name: what the commands print. ``verify`` starts an engine, and its numbers
    are those of the machine, so that block alone is not compared by a test."""
    with tempfile.TemporaryDirectory() as scratch:
        convert = _fusec(["convert", EXAMPLE, "-o", "tinymodel-vllm"], scratch)
        stat = _fusec(["diff", "tinymodel-vllm", "--stat"], scratch)
        table = _fusec(["verify", "tinymodel-vllm", "--trust-remote-code"], scratch) if verify else ""
        port = (Path(scratch) / "tinymodel-vllm").glob("*/modeling_*.py")
        text = next(iter(port)).read_text(encoding="utf-8")
    return {
        "convert": _fenced(convert, "text"),
        "stat": _fenced(stat, "text"),
        **({"verify": _fenced(table, "text")} if verify else {}),
        "port": _fenced(_class(text, "TinyModelAttention"), "python"),
    }


def pages() -> dict[Path, str]:
    """Every generated file with the text that it should have."""
    path = ROOT / "README.md"
    readme = path.read_text(encoding="utf-8")
    blocks = example_blocks(verify=True)
    for name, body in readme_blocks(readme):
        start, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        readme = readme.replace(f"{start}{body}{end}", f"{start}{blocks[name]}{end}")
    return {
        path: readme,
        ROOT / "docs" / "diagnostics.md": diagnostics_page(),
        ROOT / "docs" / "patterns.md": patterns_page(),
        ROOT / "patterns" / "families.json": families_table(),
    }


def _fusec(arguments: list[str], scratch: str) -> str:
    """What a command prints, run in ``scratch`` with the examples at hand as they are in a checkout."""
    examples = Path(scratch) / "examples"
    if not examples.exists():
        examples.symlink_to(ROOT / "examples")
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "fusec", *arguments],
        cwd=scratch, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"fusec {' '.join(arguments)} failed:\n{done.stderr}")
    return f"$ fusec {' '.join(arguments)}\n{done.stdout.rstrip()}\n"


def _class(text: str, name: str) -> str:
    """The source of one class of the port."""
    found = re.search(rf"^class {name}\b.*?(?=^\S)", text + "\nend", re.DOTALL | re.MULTILINE)
    return found[0].rstrip() + "\n" if found else ""


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}```\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
