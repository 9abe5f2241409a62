"""All or nothing: whatever stops the writing, nothing is left behind and an old folder stays as it was."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from fusec.diagnostics import FusecError
from fusec.emit import emit_package
from fusec.emit.write import check_destination, write_folder

FILES: Mapping[str, bytes] = {"fusec.lock": b"{}", "a/b.py": b"B = 1\n"}
OTHER: Mapping[str, bytes] = {"fusec.lock": b"{}", "c.py": b"C = 1\n"}


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_holds_exactly_the_files(tmp_path: Path) -> None:
    write_folder(FILES, tmp_path / "x" / "y" / "out")
    assert content(tmp_path / "x") == {f"y/out/{name}": data for name, data in FILES.items()}


def test_it_has_the_rights_of_any_new_folder(tmp_path: Path) -> None:
    write_folder(FILES, tmp_path / "out")
    (tmp_path / "made").mkdir()
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "made").stat().st_mode)


@pytest.mark.parametrize("kind", ["package", "empty folder", "other folder", "file", "dangling link"])
def test_what_exists_is_refused(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    make(out, kind)
    before = sorted(tmp_path.rglob("*"))
    for attempt in (lambda: check_destination(out, False), lambda: write_folder(OTHER, out)):
        with pytest.raises(FusecError, match="exists already") as caught:
            attempt()
        assert (caught.value.exit_status, caught.value.diagnostics[0].code) == (2, "FUS002")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["package", "empty folder"])
def test_force_replaces_what_is_ours(tmp_path: Path, kind: str) -> None:
    make(tmp_path / "out", kind)
    write_folder(OTHER, tmp_path / "out", force=True)
    assert content(tmp_path) == {f"out/{name}": data for name, data in OTHER.items()}


@pytest.mark.parametrize("kind", ["other folder", "file", "dangling link"])
def test_force_replaces_nothing_else(tmp_path: Path, kind: str) -> None:
    """`fusec convert x -o ~ --force` must not cost a home folder."""
    make(tmp_path / "out", kind)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FusecError, match="not a package that fusec wrote"):
        write_folder(OTHER, tmp_path / "out", force=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_force_through_a_link_replaces_what_it_points_at(tmp_path: Path) -> None:
    write_folder(FILES, tmp_path / "real")
    (tmp_path / "out").symlink_to("real")
    write_folder(OTHER, tmp_path / "out", force=True)
    assert (tmp_path / "out").is_symlink()
    assert content(tmp_path / "real") == OTHER


def make(path: Path, kind: str) -> None:
    if kind == "package":
        write_folder(FILES, path)
    elif kind == "file":
        path.write_text("mine")
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.mkdir()
        if kind == "other folder":
            (path / "mine").write_text("mine")


class Stop(BaseException):
    """Stands for an interrupt."""


def fail_on(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, number: int, error: BaseException) -> None:
    """The ``number``-th call of a method raises ``error``."""
    original, calls = getattr(owner, name), iter(range(1, 1000))

    def method(*args: object, **kwargs: object) -> object:
        if next(calls) == number:
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, method)


INTERRUPTIONS = [
    ("write_bytes", 1), ("write_bytes", 2), ("chmod", 1), ("rename", 1), ("rename", 2), ("mkdir", 1), ("mkdir", 2),
]  # fmt: skip


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), Stop()], ids=repr)
@pytest.mark.parametrize(("method", "number"), INTERRUPTIONS)
def test_an_interruption_leaves_the_old_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, number: int, error: BaseException
) -> None:
    write_folder(FILES, tmp_path / "out")
    with monkeypatch.context() as patch:
        fail_on(patch, Path, method, number, error)
        with pytest.raises((FusecError, type(error))) as caught:
            write_folder({**OTHER, "d/e.py": b""}, tmp_path / "out", force=True)
    if isinstance(error, OSError):
        assert isinstance(caught.value, FusecError)
        assert caught.value.diagnostics[0].code == "FUS003"
        assert "No space left on device" in str(caught.value)
    else:
        assert caught.value is error
    assert content(tmp_path) == {f"out/{name}": data for name, data in FILES.items()}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interruption_leaves_no_new_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with monkeypatch.context() as patch:
        fail_on(patch, Path, "mkdir", number, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            write_folder(FILES, tmp_path / "x" / "y" / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file(facts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FusecError) as caught:
        emit_package(*facts(), tmp_path / "file" / "out")
    assert caught.value.diagnostics[0].code == "FUS003"
    assert content(tmp_path) == {"file": b"mine"}


def test_a_read_only_file_system(facts) -> None:
    with pytest.raises(FusecError, match="could not be written") as caught:
        emit_package(*facts(), Path("/proc/out"))
    assert caught.value.diagnostics[0].code == "FUS003"


def test_an_interruption_while_the_old_package_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(FILES, tmp_path / "out")
    with monkeypatch.context() as patch:
        fail_on(patch, shutil, "rmtree", 1, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            write_folder(OTHER, tmp_path / "out", force=True)
    assert content(tmp_path) == {f"out/{name}": data for name, data in OTHER.items()}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
