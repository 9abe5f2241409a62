"""Checkpoints to convert, and the real command in a process of its own that must leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINYMODEL = ROOT / "examples" / "tinymodel"


@dataclass(frozen=True)
class Done:
    """One finished command: its exit status, what it printed, and the files that it made."""

    status: int
    out: str
    err: str
    made: frozenset[str]

    @property
    def codes(self) -> list[str]:
        """The diagnostic codes on stderr, in order."""
        return [line.split("[")[1].split("]")[0] for line in self.err.splitlines() if line.startswith("error[")]


def _tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def fusec(tmp_path: Path) -> Callable[..., Done]:
    """Runs ``fusec ARGS`` in ``tmp_path``; temporary files and caches go there too, so that leftovers show."""
    (tmp_path / "tmp").mkdir()

    def run(*args: str | Path, env: Mapping[str, str] | None = None, timeout: float = 300) -> Done:
        before = _tree(tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "fusec", *map(str, args)],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "TMPDIR": str(tmp_path / "tmp"),
                "HF_HOME": str(tmp_path / "tmp" / "hub"),
                **(env or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr, frozenset(_tree(tmp_path) - before))

    return run


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder with our example model: ``edits`` replace text in its modeling file, ``config`` updates its
    config (``None`` removes a key), ``raw_config`` replaces it."""

    def make(
        name: str = "model",
        *,
        edits: Sequence[tuple[str, str]] = (),
        config: Mapping[str, Any] | None = None,
        raw_config: str | None = None,
    ) -> Path:
        folder = tmp_path / name
        shutil.copytree(TINYMODEL, folder, ignore=shutil.ignore_patterns("__pycache__"))
        modeling = folder / "modeling_tinymodel.py"
        text = modeling.read_text(encoding="utf-8")
        for old, new in edits:
            assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the example"
            text = text.replace(old, new)
        modeling.write_text(text, encoding="utf-8")
        if raw_config is not None:
            (folder / "config.json").write_text(raw_config, encoding="utf-8")
        elif config is not None:
            merged = json.loads((folder / "config.json").read_text()) | dict(config)
            merged = {key: value for key, value in merged.items() if value is not None}
            (folder / "config.json").write_text(json.dumps(merged), encoding="utf-8")
        return folder

    return make
