"""``diff``: finds the two texts, in an emitted package or by a conversion in memory, and compares them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fusec.diagnostics import Diagnostic, UsageProblem
from fusec.emit.lock import LOCK_NAME, read_lock
from fusec.emit.names import suggested_stem
from fusec.review.diff import PortDiff, compare
from fusec.review.text import code_lines
from fusec.rewrite.types import Change


def diff(out_or_model: str | Path, *, pattern: str | None = None, cls: str | None = None) -> PortDiff:
    """The modeling file beside its port, with the pattern behind each hunk.

    ``out_or_model`` is a folder that ``fusec convert`` wrote, or whatever ``fusec convert``
    takes, which is then converted in memory. Lines of a port that were edited after its
    conversion are labelled as such. Raises :class:`UsageProblem` for a folder whose files
    are gone, a ``pattern`` or a ``cls`` that does not occur, and what a conversion raises.
    """
    folder = Path(out_or_model)
    if "\0" not in str(folder) and (folder / LOCK_NAME).is_file():
        return _of_package(folder, pattern, cls)
    from fusec.pipeline import convert

    made = convert(str(out_or_model), dry_run=True)
    if made.port is None:
        raise AssertionError("a conversion without an error has a port")
    return compare(
        made.checkpoint.modeling.text,
        made.port.modeling,
        made.port.changes,
        source_name=made.checkpoint.modeling.name,
        port_name=f"modeling_{suggested_stem(made.port.model_type)}.py",
        pattern=pattern,
        cls=cls,
    )


def _of_package(folder: Path, pattern: str | None, cls: str | None) -> PortDiff:
    lock = read_lock(folder)
    source = _read(folder, lock.modeling.file)
    pristine = _read(folder, f".fusec/generated/{lock.modeling_file}")
    current = _read(folder, lock.modeling_file)
    changes = lock.changes if current == pristine else moved(lock.changes, pristine, current)
    return compare(
        source, current, changes, source_name=lock.modeling.name, port_name=lock.modeling_file, pattern=pattern, cls=cls
    )


def moved(changes: Sequence[Change], pristine: str, current: str) -> tuple[Change, ...]:
    """The changes of a port that was edited: their port lines moved along, and one change more for each edit."""
    blocks = difflib.SequenceMatcher(None, code_lines(pristine), code_lines(current), autojunk=False).get_opcodes()
    now = {a + i + 1: b + i + 1 for tag, a, a2, b, _ in blocks if tag == "equal" for i in range(a2 - a)}
    kept = []
    for change in changes:
        first, last = change.port_lines or (1, 0)
        lines = [now[line] for line in range(first, last + 1) if line in now]
        kept.append(replace(change, port_lines=(lines[0], lines[-1]) if lines else None))
    edits = [
        Change("", "added", "edited after the conversion", port_lines=(b + 1, b2))
        for tag, _, _, b, b2 in blocks
        if tag != "equal" and b2 > b
    ]
    return (*kept, *edits)


def _read(folder: Path, name: str) -> str:
    # A lock comes from outside, too: it names files of its own folder or none.
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UsageProblem(Diagnostic("FUS001", f"The lock of {folder} names a file outside of it: {name}."))
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageProblem(
            Diagnostic("FUS001", f"{path} could not be read: {error}.", hint="Convert the model again.")
        ) from error
