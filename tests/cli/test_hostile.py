"""Code and names made to do harm: a file that acts when imported, strings made to break out of what is emitted."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MARKER = "somebody_ran_me"
ACT = f"open({MARKER!r}, 'w').close()"


def harmless(tmp_path: Path) -> None:
    assert not list(tmp_path.rglob(MARKER)), "code from the model ran"


def test_what_is_converted_never_runs(
    fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """At the top level and in class bodies, of the modeling file, the configuration and the package around them."""
    folder = checkpoint(
        edits=[
            ("def turn(x, cos, sin):\n", f"{ACT}\n\n\ndef turn(x, cos, sin):\n"),
            ("class TinyModelMLP(nn.Module):\n", f"class TinyModelMLP(nn.Module):\n    {ACT}\n"),
        ]
    )
    configuration = folder / "configuration_tinymodel.py"
    configuration.write_text(configuration.read_text() + f"\n{ACT}\n")
    (folder / "__init__.py").write_text(ACT)
    assert fusec("convert", "model", "-o", "out").status == 0
    assert fusec("diff", "model").status == 0
    harmless(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def turn(x, cos, sin):\n", f"def turn(x, cos, sin, unused={ACT}):\n"),
        ("def turn(x, cos, sin):\n", f"@{ACT}\ndef turn(x, cos, sin):\n"),
        ("    return self.weight * x.to(dtype)", f"    {ACT}\n        return self.weight * x.to(dtype)"),
        ("        self.eps = eps\n", f"        self.eps = eps\n        {ACT}\n"),
        ("import torch\n", f"try:\n    {ACT}\nexcept Exception:\n    pass\nimport torch\n"),
    ],
)
def test_what_acts_where_it_is_looked_at_never_runs(
    old: str, new: str, fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """In defaults, decorators, __init__, forward: it may be refused, and is refused by name."""
    folder = checkpoint()
    modeling = folder / "modeling_tinymodel.py"
    modeling.write_text(modeling.read_text().replace(old, new, 1))
    done = fusec("convert", "model", "-o", "out")
    assert done.status in (0, 1)
    assert done.status == 0 or (done.codes and "FUS005" not in done.codes), done.err
    harmless(tmp_path)


BREAKOUTS = [
    f'"]\n{ACT}\n',
    f"'''\n{ACT}\n",
    f'"""\n{ACT}\n',
    f"x\n[project]\nname = 'y'\n{ACT}\n",
    f"{{{ACT}}}",
    "../../x",
    "a\x1b[2Jb",
]
# Keys that reach the package as data alone, and those that say what the model is.
FREE_KEYS = ("_name_or_path", "transformers_version", "note", "dtype")
DECIDING_KEYS = ("model_type", "hidden_act")


@pytest.mark.parametrize("text", BREAKOUTS)
@pytest.mark.parametrize("keys", [FREE_KEYS, *((key,) for key in DECIDING_KEYS)], ids="-".join)
def test_a_string_of_the_config_stays_a_string(
    keys: tuple[str, ...], text: str, fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint(config=dict.fromkeys(keys, text))
    done = fusec("convert", "model", "-o", "out", "--json")
    report = json.loads(done.out)
    if not report["ok"]:
        assert done.status == 1
        assert "FUS005" not in {each["code"] for each in report["diagnostics"]}
        assert not done.made
        return
    assert all(name == "out" or name.startswith("out/") for name in done.made), done.made
    out = tmp_path / "out"
    for path in out.rglob("*.py"):
        # As an expression of its own the marker would be an argument; inside a string it is part of a longer one.
        constants = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)]
        assert not any(node.value == MARKER for node in constants), path
    assert tomllib.loads((out / "pyproject.toml").read_text("utf-8"))["project"]["name"] != "y"
    assert "\x1b" not in (out / "README.md").read_text("utf-8")
    json.loads((out / "fusec.lock").read_text("ascii"))


@pytest.mark.parametrize("architecture", [*BREAKOUTS, "class", "Tiny Model", "os", ""])
def test_an_architecture_that_is_no_class_is_refused(
    architecture: str, fusec: Callable[..., Any], checkpoint: Callable[..., Path]
) -> None:
    checkpoint(config={"architectures": [architecture]})
    done = fusec("convert", "model", "-o", "out")
    assert done.status == 1
    assert done.codes
    assert "FUS005" not in done.codes, done.err
    assert not done.made
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    "reference",
    ["../evil.TinyModelForCausalLM", "/etc/passwd.X", "os.system", "someone/else--modeling.X", "..X", 3, ["x"]],
)
def test_an_auto_map_reads_nothing_outside_of_the_checkpoint(
    reference: Any, fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint(config={"auto_map": {"AutoConfig": reference, "AutoModelForCausalLM": reference}})
    (tmp_path / "evil.py").write_text((tmp_path / "model" / "modeling_tinymodel.py").read_text())
    done = fusec("convert", "model", "-o", "out")
    assert done.status in (1, 3)
    assert done.codes
    assert done.codes[0] != "FUS005"


@pytest.mark.parametrize("name", ["[red]model[", "mo del", "-dash", "модель", "new\nline", 'qu"ote'])
def test_a_folder_may_have_any_name(
    name: str, fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint(name)
    done = (
        fusec("convert", "-o", f"{name}-out", "--", name)
        if name.startswith("-")
        else fusec("convert", name, "-o", f"{name}-out")
    )
    assert done.status == 0, done.err
    assert (tmp_path / f"{name}-out" / "fusec.lock").is_file()


def test_a_conversion_imports_no_heavy_library(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint()
    script = (
        "import sys, fusec; fusec.convert('model', out='out');"
        "print(sorted({'torch', 'transformers', 'vllm'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "PATH": ""},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
