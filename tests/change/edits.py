"""Edits of a fixture's modeling file, as data.

A ``.txt`` file holds cases like

    [residual_subtracted]
    The stream loses what a block computed.
    config: {"tie_word_embeddings": true}
    declare: repeats: int = 2
    rename: residual -> skip
    -        hidden_states = residual + hidden_states
    +        hidden_states = residual - hidden_states
    => shows hidden_states = residual - hidden_states

``config`` updates config.json, ``declare`` adds a field to the configuration class, ``rename`` renames an identifier
wherever it stands, and each run of ``-`` lines must occur once and is replaced by the ``+`` lines after it (``@@``
parts runs that would touch). What is expected stands behind ``=>``:

    same             the port of the fixture as it is, after the renames
    same but TEXT    the same with the pairs ``OLD >> NEW`` applied to it, one per line of this kind
    shows TEXT       the port has this line (blanks at its ends and line breaks aside)
    lacks TEXT       it does not
    refused CODE...  there is no port, but a diagnostic with one of these codes (any, where none is named);
                     with ``shows`` beside it, either will do
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "dense"
MEADOW = FIXTURES / "meadow"
VERBS = ("same", "shows", "lacks", "refused")


@dataclass(frozen=True)
class Edit:
    """One case. ``hunks`` are (old, new) texts, ``renames`` (old, new) identifiers, ``expected`` (verb, rest)."""

    name: str
    what: str
    config: dict[str, Any]
    declared: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    hunks: tuple[tuple[str, str], ...]
    expected: tuple[tuple[str, str], ...]
    other: dict[str, Any] | None = None
    """A second config (see two_configs.txt)."""

    def expectations(self, verb: str) -> tuple[str, ...]:
        return tuple(rest for word, rest in self.expected if word == verb)

    @property
    def is_refused(self) -> bool:
        return bool(self.expectations("refused"))

    @property
    def is_same(self) -> bool:
        return any(word.startswith("same") for word, _ in self.expected)


def read_edits(name: str) -> dict[str, Edit]:
    """The cases of ``tests/change/NAME.txt`` by name."""
    text = (Path(__file__).with_name(name).with_suffix(".txt")).read_text(encoding="utf-8")
    out: dict[str, Edit] = {}
    for part in re.split(r"^(?=\[\w+\]$)", text, flags=re.MULTILINE)[1:]:
        edit = _edit(part.splitlines())
        assert edit.name not in out, f"two cases are called {edit.name}"
        out[edit.name] = edit
    return out


def _edit(lines: list[str]) -> Edit:
    name = lines[0].strip("[]")
    config: dict[str, Any] = {}
    other: dict[str, Any] | None = None
    declared, renames, expected, what = [], [], [], []
    hunks: list[tuple[list[str], list[str]]] = []
    previous = ""
    for line in lines[1:]:
        mark, rest = line[:1], line[1:]
        if line == "@@":
            pass
        elif mark in ("-", "+"):
            if mark == "-" and previous != "-":
                hunks.append(([], []))
            hunks[-1][mark == "+"].append(rest)
        elif line.startswith("=> same but "):
            expected.append(("same but", line.removeprefix("=> same but ")))
        elif line.startswith("=> "):
            verb, _, argument = line.removeprefix("=> ").partition(" ")
            assert verb in VERBS, line
            expected.append((verb, argument))
        elif line.startswith("config: "):
            config.update(json.loads(line.removeprefix("config: ")))
        elif line.startswith("other: "):
            other = json.loads(line.removeprefix("other: "))
        elif line.startswith("declare: "):
            declared.append(line.removeprefix("declare: "))
        elif line.startswith("rename: "):
            old, new = line.removeprefix("rename: ").split(" -> ")
            renames.append((old, new))
        elif line.strip():
            what.append(line)
        previous = mark
    assert expected or other, f"{name} expects nothing"
    assert hunks or renames or config or other, f"{name} changes nothing"
    pairs = tuple(("".join(f"{x}\n" for x in old), "".join(f"{x}\n" for x in new)) for old, new in hunks)
    return Edit(name, " ".join(what), config, tuple(declared), tuple(renames), pairs, tuple(expected), other)


def write_fixture(folder: Path, edits: Iterable[Edit] = (), fixture: Path = MEADOW) -> Path:
    """A copy of the fixture in ``folder`` with the edits made, one after the other."""
    shutil.copytree(fixture, folder)
    modeling = next(folder.glob("modeling_*.py"))
    configuration = next(folder.glob("configuration_*.py"))
    text, declarations = modeling.read_text(encoding="utf-8"), configuration.read_text(encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for edit in edits:
        for old, new in edit.hunks:
            assert text.count(old) == 1, f"{edit.name}: {text.count(old)} times in the fixture:\n{old}"
            text = text.replace(old, new)
        text = renamed(text, edit.renames)
        for line in edit.declared:
            anchor = "    pad_token_id: int | None = None\n"
            assert declarations.count(anchor) == 1
            declarations = declarations.replace(anchor, f"{anchor}    {line}\n")
        config.update(edit.config)
    compile(text, modeling.name, "exec")
    modeling.write_text(text, encoding="utf-8")
    configuration.write_text(declarations, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return folder


def renamed(text: str, renames: Iterable[tuple[str, str]]) -> str:
    for old, new in renames:
        assert not re.search(rf"\b{new}\b", text), f"{new} is in the text already"
        assert re.search(rf"\b{old}\b", text), f"{old} is not in the text"
        text = re.sub(rf"\b{old}\b", new, text)
    return text


def flat(text: str) -> str:
    """Text with line breaks, blanks and trailing commas out of the way, to look for a line that may be wrapped."""
    text = re.sub(r"\s+", " ", text)
    return re.sub(r",? ?([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", text))
