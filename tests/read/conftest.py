"""What the tests of the first stage share: folders with a checkpoint in them, and the refusal of one."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusec.diagnostics import Diagnostic, FusecError
from fusec.read import read_checkpoint

CONFIG = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}


@pytest.fixture(scope="session")
def safetensors() -> Callable[..., bytes]:
    """``safetensors(name=[2, 3], ...)``: a safetensors file of float32 zeros."""
    return _safetensors


def _safetensors(**shapes: list[int]) -> bytes:
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(offset)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., str]:
    """``checkpoint(files, **keys)`` writes a folder; a file may be text, bytes or a JSON value."""

    def write(files: dict[str, Any] | None = None, **keys: Any) -> str:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        for name, content in {"config.json": {**CONFIG, **keys}, **(files or {})}.items():
            data = content if isinstance(content, bytes) else None
            text = content if isinstance(content, str) else json.dumps(content) if data is None else ""
            (folder / name).write_bytes(data if data is not None else text.encode())
        return str(folder)

    return write


@pytest.fixture
def refusal() -> Callable[..., Diagnostic]:
    """``refusal(model, ...)``: the one diagnostic with which reading is refused."""

    def read(model: str, **options: Any) -> Diagnostic:
        with pytest.raises(FusecError) as caught:
            read_checkpoint(model, **options)
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.message.endswith((".", "!")), diagnostic.message
        return diagnostic

    return read
