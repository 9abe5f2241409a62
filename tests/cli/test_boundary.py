"""The one place where errors become text: exit statuses, JSON, markup, interrupts. Without the compiler behind it."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fusec
from fusec import cli
from fusec.diagnostics import Diagnostic, EnvironmentProblem, FusecError, Place, UsageProblem


@pytest.fixture
def converting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Puts a function in the place of ``fusec.convert``."""

    def put(function: Callable[..., Any]) -> None:
        stand_in = types.ModuleType("fusec.pipeline")
        stand_in.convert = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "fusec.pipeline", stand_in)

    return put


def raising(error: BaseException) -> Callable[..., Any]:
    def convert(*_: object, **__: object) -> Any:
        raise error

    return convert


@pytest.mark.parametrize(("kind", "status"), [(FusecError, 1), (UsageProblem, 2), (EnvironmentProblem, 3)])
def test_each_kind_of_error_has_its_exit_status(
    kind: type[FusecError], status: int, converting: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text("first\n  second\n")
    where = Place(str(tmp_path / "m.py"), 2, 3)
    converting(raising(kind([Diagnostic("FUS301", "One.", where, "Do this."), Diagnostic("FUS302", "Two.")])))
    assert cli.run(["convert", "x", "-o", "y"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "error[FUS301]: One."
    assert f"{where}" in lines[1]
    assert any(line.endswith("|   second") for line in lines)
    assert "  hint: Do this." in lines
    assert "error[FUS302]: Two." in lines


def test_json_holds_the_same_and_nothing_else_is_printed(converting: Any, capsys: pytest.CaptureFixture[str]) -> None:
    converting(raising(FusecError(Diagnostic("FUS301", "One [bold]\x1b[1m.", Place("m.py", 2, 3), "Do this."))))
    assert cli.run(["convert", "x", "-o", "y", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "ok": False,
        "diagnostics": [
            {
                "code": "FUS301",
                "severity": "error",
                "message": "One [bold]\x1b[1m.",
                "place": {"path": "m.py", "line": 2, "column": 3},
                "hint": "Do this.",
            }
        ],
    }


def test_an_unforeseen_error_is_one_sentence_and_debug_shows_where(
    converting: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    converting(raising(ZeroDivisionError("by [nothing]")))
    assert cli.run(["convert", "x", "-o", "y"]) == 1
    err = capsys.readouterr().err
    assert "error[FUS005]" in err
    assert "by [nothing]" in err
    assert "--debug" in err
    assert "Traceback" not in err
    assert cli.run(["convert", "x", "-o", "y", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_package_that_is_not_installed_is_the_environments_fault(
    converting: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    converting(raising(ModuleNotFoundError("No module named 'vllm'", name="vllm.entrypoints")))
    assert cli.run(["convert", "x", "-o", "y"]) == 3
    err = capsys.readouterr().err
    assert "error[FUS004]" in err
    assert "vllm" in err


def test_an_interrupt(converting: Any, capsys: pytest.CaptureFixture[str]) -> None:
    converting(raising(KeyboardInterrupt()))
    assert cli.run(["convert", "x", "-o", "y"]) == 130
    assert capsys.readouterr().out == ""


def test_markup_and_escapes_in_outside_text_are_shown_as_they_are(
    converting: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    converting(raising(FusecError(Diagnostic("FUS101", "No folder [red]x[/red] :smile: \x1b[2J.", hint="[/]"))))
    assert cli.run(["convert", "[red]", "-o", "y"]) == 1
    err = capsys.readouterr().err
    assert "No folder [red]x[/red] :smile: \\x1b[2J." in err
    assert "hint: [/]" in err


@pytest.mark.parametrize(
    "args",
    [
        ["convert"],
        ["convert", "x"],
        ["convert", "x", "-o", "y", "--stop-after", "lunch"],
        ["convert", "x", "-o", "y", "--no-such-option"],
        ["verify", "x", "--tp", "0"],
        ["verify", "x", "--dtype", "int8"],
        ["diff", "x", "--unified", "--stat"],
        ["patterns", "show"],
        ["no-such-command"],
    ],
)
def test_a_wrong_call_is_status_2_in_words_and_in_json(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err
    assert cli.run([*args, "--json"]) == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["ok"] is False
    assert document["diagnostics"][0]["code"] == "FUS001"


def test_the_arguments_reach_the_api(converting: Any) -> None:
    seen: dict[str, Any] = {}

    def convert(model: str, **options: Any) -> Any:
        seen.update(options, model=model)
        raise FusecError(())

    converting(convert)
    cli.run("convert m -o o --source s.py --force --patterns p --revision r --package-name n --stop-after plan".split())
    seen.pop("progress")
    assert seen == {
        "model": "m",
        "out": Path("o"),
        "source": Path("s.py"),
        "force": True,
        "patterns": Path("p"),
        "revision": "r",
        "package_name": "n",
        "dry_run": False,
        "stop_after": "plan",
    }


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"fusec {fusec.__version__}\n"
    assert cli.run(["--help"]) == 0
    for command in ("convert", "diff", "verify", "patterns", "doctor"):
        assert command in capsys.readouterr().out or cli.run([command, "--help"]) == 0
