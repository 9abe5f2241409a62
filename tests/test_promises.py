"""Promises that no one stage keeps alone: nothing of the source runs, the same input gives the same bytes, and one
port serves every size of a family."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import fusec
from tests.engine.coverage import Case, cases

ROOT = Path(__file__).resolve().parent.parent
TINYMODEL = ROOT / "examples" / "tinymodel"

# Statements that leave a file behind where they are executed; MARK is its path.
ON_IMPORT = """
open("MARK", "w").close()
_made = open("MARK", "w")
_ran = __import__("os").system("touch MARK")
exec("open('MARK', 'w')")
[open("MARK", "w") for _ in range(1)]
if open("MARK", "w"):
    pass
for _line in [open("MARK", "w")]:
    pass
with open("MARK", "w") as _file:
    pass
try:
    import os
    os.close(os.open("MARK", os.O_CREAT))
except Exception:
    open("MARK", "w")


class _Meta(type):
    def __new__(mcs, *args):
        open("MARK", "w")
        return super().__new__(mcs, *args)


class _Marked(metaclass=_Meta):
    open("MARK", "w")
    held = open("MARK", "w")
    listed = [open("MARK", "w") for _ in range(1)]

    def __init_subclass__(cls):
        open("MARK", "w")

    @(lambda f: open("MARK", "w"))
    def method(self, default=open("MARK", "w")):
        pass


class _Below(_Marked):
    pass
"""
IN_A_CLASS = {"call": 'open("MARK", "w")', "value": 'kept = open("MARK", "w")', "if": 'if open("MARK", "w"): pass'}
IN_FORWARD = {
    "open": 'open("MARK", "w")',
    "system": '__import__("os").system("touch MARK")',
    "exec": "exec(\"open('MARK', 'w')\")",
    "eval": "eval(\"open('MARK', 'w')\")",
    "map": 'list(map(open, ["MARK"], ["w"]))',
    "partial": '__import__("functools").partial(open, "MARK", "w")()',
    "pathlib": '__import__("pathlib").Path("MARK").touch()',
    "a_builtin_by_name": 'getattr(__builtins__, "open")("MARK", "w")',
    "globals": 'globals()["__builtins__"]["open"]("MARK", "w")',
    "reduce": '__import__("copy").copy(type("X", (), {"__reduce__": lambda s: (open, ("MARK", "w"))})())',
    "torch": 'torch.save({}, "MARK")',
}


def marked(folder: Path, old: str, new: str) -> tuple[Path, Path]:
    """Our example model in ``folder`` with some text of its modeling file replaced, and the file to be left behind."""
    mark = folder / "mark"
    model = folder / "model"
    model.mkdir()
    for path in TINYMODEL.glob("*.*"):
        (model / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    modeling = model / "modeling_tinymodel.py"
    text = modeling.read_text(encoding="utf-8")
    assert text.count(old) == 1
    modeling.write_text(text.replace(old, new.replace("MARK", str(mark))), encoding="utf-8")
    return model, mark


def test_importing_is_not_what_a_conversion_does(tmp_path: Path) -> None:
    """What stands at the top level of a modeling and of a configuration file, and in class bodies there."""
    before = "\n\nclass TinyModelRMSNorm(nn.Module):\n"
    model, mark = marked(tmp_path, before, ON_IMPORT + before)
    configuration = model / "configuration_tinymodel.py"
    text = ON_IMPORT.replace("MARK", str(mark))
    configuration.write_text(configuration.read_text(encoding="utf-8") + text, encoding="utf-8")
    port = fusec.convert(str(model), dry_run=True).port
    assert not mark.exists()
    assert port is not None
    assert "open(" not in port.modeling
    # The same text does leave the file where it runs.
    subprocess.run([sys.executable, "-c", text], check=False, capture_output=True)
    assert mark.exists()


@pytest.mark.parametrize("name", IN_A_CLASS)
def test_the_body_of_a_class_in_use_is_not_run(name: str, tmp_path: Path) -> None:
    old = "class TinyModelMLP(nn.Module):\n"
    model, mark = marked(tmp_path, old, f"{old}    {IN_A_CLASS[name]}\n")
    port = fusec.convert(str(model), dry_run=True).port
    assert not mark.exists()
    assert port is not None
    assert "open(" not in port.modeling


@pytest.mark.parametrize("name", IN_FORWARD)
def test_a_forward_is_not_run(name: str, tmp_path: Path) -> None:
    old = "        batch, length, _ = hidden_states.shape\n"
    model, mark = marked(tmp_path, old, f"{old}        {IN_FORWARD[name]}\n")
    with pytest.raises(fusec.FusecError) as refusal:
        fusec.convert(str(model), dry_run=True)
    assert not mark.exists()
    (diagnostic,) = refusal.value.diagnostics
    assert diagnostic.code.startswith("FUS3")
    assert diagnostic.place is not None


TEXTS = """
import json, sys, fusec
print(json.dumps([fusec.convert(model, dry_run=True).port.modeling for model in sys.argv[1:]]))
"""


def texts(*models: str, seed: str) -> list[str]:
    """The ports of some models, converted one after the other in one process."""
    done = subprocess.run(
        [sys.executable, "-c", TEXTS, *models], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )  # fmt: skip
    made: list[str] = json.loads(done.stdout)
    return made


def test_one_conversion_leaves_nothing_for_the_next() -> None:
    """Models converted in one process, in either order, and each in a process of its own."""
    models = (str(TINYMODEL), "qwen3", "smollm3")
    together = texts(*models, seed="1")
    backwards = texts(*reversed(models), seed="2")[::-1]
    alone = [texts(model, seed="3")[0] for model in models]
    assert together == backwards == alone
    assert len(set(together)) == len(models)


def few_of_each_family() -> dict[str, list[Case]]:
    """Configs of each family that differ as much as a handful can."""
    by_family: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        by_family[case.model_type].append(case)
    return {family: members[:: max(1, len(members) // 4)][:5] for family, members in by_family.items()}


@pytest.mark.parametrize("family", few_of_each_family())
def test_one_text_serves_every_config_of_a_family(family: str, tmp_path: Path) -> None:
    ports = {}
    for case in few_of_each_family()[family]:
        folder = tmp_path / case.name[:60]
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(case.config), encoding="utf-8")
        port = fusec.convert(str(folder), dry_run=True).port
        assert port is not None
        ports[case.name] = port.modeling
    assert len(ports) >= 3
    first = next(iter(ports.values()))
    assert [name for name, text in ports.items() if text != first] == []
