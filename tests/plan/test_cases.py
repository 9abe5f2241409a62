"""Each plan case, a change of our example model's config or source, has the plan or the refusal that stands beside it.

``tests/cases/plan/NAME.json`` holds ``config`` (keys to set; null removes one) and ``edits`` (pairs of old and new
text); ``NAME.txt`` is what ``--stop-after plan`` prints.
``python -m tests.plan.test_cases`` rewrites every ``.txt``; read the difference before you keep it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

import fusec

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "cases" / "plan"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def planned(name: str, scratch: Path) -> str:
    case = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    folder = scratch / "model"
    shutil.copytree(ROOT / "examples" / "tinymodel", folder, ignore=shutil.ignore_patterns("__pycache__"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | case.get("config", {})
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    modeling = folder / "modeling_tinymodel.py"
    text = modeling.read_text(encoding="utf-8")
    for old, new in case.get("edits", ()):
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the example"
        text = text.replace(old, new)
    modeling.write_text(text, encoding="utf-8")
    try:
        return (fusec.convert(str(folder), stop_after="plan").stage_dump or "") + "\n"
    except fusec.FusecError as error:
        return "".join(f"{d.code} at {d.place}: {d.message}\n" for d in error.diagnostics)


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_the_expected_one(name: str, tmp_path: Path) -> None:
    assert planned(name, tmp_path) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for case_name in NAMES:
        with tempfile.TemporaryDirectory() as made:
            (FOLDER / f"{case_name}.txt").write_text(planned(case_name, Path(made)), encoding="utf-8")
