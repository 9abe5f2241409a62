"""AutoConfig's own answers, from one process per set of configurations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fusec.configure import Config
from fusec.configure.plain import decode

REFERENCE = Path(__file__).with_name("reference.py")
# Where the checkpoint lies, and how a class was registered, is nothing that a model computes with.
NOT_COMPARED = {"_name_or_path", "name_or_path", "_auto_class"}


@pytest.fixture(scope="session")
def auto_config(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[dict[str, Any]]], list[Config | str]]:
    """``auto_config(configs)``: per config what AutoConfig makes of it, or its error as text."""

    def ask(configs: list[dict[str, Any]]) -> list[Config | str]:
        modules = tmp_path_factory.mktemp("modules")
        root = REFERENCE.parents[2]
        done = subprocess.run(
            [sys.executable, str(REFERENCE)],
            input=json.dumps(configs),
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
            env={**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(modules)},
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(configs)
        return [answer.get("error") or decode(answer["config"]) for answer in answers]

    return ask


@pytest.fixture(scope="session")
def differences() -> Callable[[Config, Config], list[str]]:
    """``differences(reference, ours)``: attribute by attribute, in value or in type."""
    return lambda reference, ours: list(_differences(reference, ours))


def _differences(reference: Any, ours: Any, path: str = "config") -> Iterator[str]:
    if isinstance(reference, Config) and isinstance(ours, Config):
        if reference.cls != ours.cls:
            yield f"{path}: class {reference.cls} against {ours.cls}"
        if dict(reference.attribute_map) != dict(ours.attribute_map):
            yield f"{path}: attribute maps differ"
        for name in sorted((set(reference.values) | set(ours.values)) - NOT_COMPARED):
            if name not in reference.values:
                yield f"{path}.{name}: absent in the reference"
            elif name not in ours.values:
                yield f"{path}.{name}: absent in ours"
            else:
                yield from _differences(reference.values[name], ours.values[name], f"{path}.{name}")
    elif isinstance(reference, list | tuple) and type(reference) is type(ours) and len(reference) == len(ours):
        for i, (a, b) in enumerate(zip(reference, ours, strict=True)):
            yield from _differences(a, b, f"{path}[{i}]")
    elif isinstance(reference, dict) and isinstance(ours, dict):
        if set(reference) != set(ours):
            yield f"{path}: keys {sorted(map(str, reference))} against {sorted(map(str, ours))}"
        for key in reference.keys() & ours.keys():
            yield from _differences(reference[key], ours[key], f"{path}[{key!r}]")
    elif type(reference) is not type(ours) or (reference != ours and not (reference != reference and ours != ours)):
        yield f"{path}: {reference!r} against {ours!r}"
