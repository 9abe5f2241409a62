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
    """At the top level, in class bodies, in decorators, in defaults; in the modeling file and the configuration."""
    folder = checkpoint(
        edits=[
            ("def turn(x, cos, sin):\n", f"{ACT}\n\n\ndef turn(x, cos, sin, unused={ACT}):\n"),
            ("class TinyModelMLP(nn.Module):\n", f"class TinyModelMLP(nn.Module):\n    {ACT}\n"),
        ]
    )
    configuration = folder / "configuration_tinymodel.py"
    configuration.write_text(configuration.read_text() + f"\n{ACT}\n")
    (folder / "__init__.py").write_text(ACT)
    done = fusec("convert", "model", "-o", "out")
    # Refusing such a file is fine, converting it is too.
    assert done.status in (0, 1)
    assert done.status == 0 or done.codes
    harmless(tmp_path)
    fusec("diff", "model")
    fusec("convert", "model", "-o", "out2", "--dry-run", "--json")
    harmless(tmp_path)


BREAKOUTS = [
    '"]\nimport os\n',
    "../../x",
    "'''\nimport os\n",
    '"""\nimport os\n',
    "x\n[project]\nname='y'",
    "a\x1b[2Jb",
    "$(id)",
]


@pytest.mark.parametrize("text", BREAKOUTS)
@pytest.mark.parametrize("key", ["model_type", "hidden_act", "_name_or_path", "transformers_version", "note"])
def test_a_string_of_the_config_stays_a_string(
    key: str, text: str, fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint(config={key: text})
    done = fusec("convert", "model", "-o", "out", "--json")
    assert done.status == (0 if json.loads(done.out)["ok"] else 1)
    assert all(name == "out" or name.startswith("out/") for name in done.made), done.made
    out = tmp_path / "out"
    if done.status == 0:
        for path in out.rglob("*.py"):
            if ".fusec" not in path.parts:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                assert not any(
                    isinstance(n, ast.Import) and n.names[0].name == "os"
                    for n in tree.body
                    if "tests" not in path.parts
                )
        project = tomllib.loads((out / "pyproject.toml").read_text(encoding="utf-8"))
        assert project["project"]["name"] != "y"


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
