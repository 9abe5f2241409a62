"""Writes a folder of files all or nothing.

The files go into a temporary folder beside the target, which is then renamed: a reader
sees the old folder or the whole new one. Whatever stops the writing, an interrupt
included, nothing is left behind and an old folder stays as it was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fusec.diagnostics import Diagnostic, FusecError, UsageProblem

MARK = "fusec.lock"


def check_destination(out: Path, force: bool) -> None:
    """Refuse (FUS002, a usage problem) an ``out`` that exists, or with ``force`` one that is no emitted package.

    Cheap, so that a command can ask before it works; :func:`write_folder` asks again.
    """
    if not os.path.lexists(out):
        return
    if not force:
        hint = "Give --force to replace it, or another folder."
        raise UsageProblem(Diagnostic("FUS002", f"{out} exists already.", hint=hint))
    empty = out.is_dir() and not any(out.iterdir())
    if not empty and not (out / MARK).is_file():
        raise UsageProblem(
            Diagnostic(
                "FUS002",
                f"{out} exists and is not a package that fusec wrote, so --force does not replace it.",
                hint="Remove it by hand, or give another folder.",
            )
        )


def write_folder(files: Mapping[str, bytes], out: Path, *, force: bool = False) -> None:
    """Make ``out`` hold exactly ``files`` (relative path with forward slashes -> content).

    Raises :class:`UsageProblem` (FUS002) as :func:`check_destination` does, :class:`FusecError`
    (FUS003) where the file system refuses.
    """
    check_destination(out, force)
    target = Path(os.path.realpath(out))
    made: list[Path] = []
    fresh: Path | None = None
    try:
        made = _make_parents(target.parent)
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name[:64]}.", suffix=".new", dir=target.parent))
        for name, content in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        fresh.chmod(0o777 & ~_umask())  # mkdtemp makes a private folder
        _put_in_place(fresh, target)
    except BaseException as error:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
            raise FusecError(
                Diagnostic("FUS003", f"{out} could not be written: {reason}.", hint="Nothing was left behind.")
            ) from error
        raise


def _put_in_place(fresh: Path, target: Path) -> None:
    """Rename ``fresh`` to ``target``; an old ``target`` is set aside first and comes back if that fails."""
    if not os.path.lexists(target):
        fresh.rename(target)
        return
    aside = fresh.with_suffix(".old")
    try:
        target.rename(aside)
        fresh.rename(target)
    except BaseException:
        if os.path.lexists(aside):
            if os.path.lexists(target):  # the new one arrived, then came an interrupt: take it away again
                target.rename(fresh)
            aside.rename(target)
        raise
    try:
        shutil.rmtree(aside, ignore_errors=True)
    except BaseException:  # interrupted: the new package is in place, the old one still has to go
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _make_parents(folder: Path) -> list[Path]:
    """Create ``folder`` and what is missing above it; gives what was created, outermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    made: list[Path] = []
    try:
        for each in reversed(missing):
            each.mkdir()
            made.append(each)
    except BaseException:
        for each in reversed(made):
            with suppress(OSError):
                each.rmdir()
        raise
    return made


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
