"""Bytes from a checkpoint's folder, decoded and bounded: text, JSON, safetensors headers.

Everything that comes in here is untrusted data. A file that is too large, not UTF-8 or
not JSON is a diagnostic; names that come out of a file are checked before they become a path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fusec.diagnostics import Place, refuse
from fusec.read.types import TensorSpec

MAX_SOURCE_BYTES = 16 * 2**20
MAX_CONFIG_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 100 * 10**6  # the safetensors format's own limit
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Files(Protocol):
    """The files of one checkpoint, by flat name; ``None`` where there is no such file."""

    def read(self, name: str, limit: int) -> bytes | None: ...


def is_file_name(name: object) -> bool:
    """Whether a string from a file may be used as the name of a file beside it."""
    return isinstance(name, str) and _FILE_NAME.fullmatch(name) is not None and ".." not in name


class FolderFiles:
    """The files of a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, limit: int) -> bytes | None:
        return read_bytes(self.folder / name, name, limit)


def read_bytes(path: Path, name: str, limit: int) -> bytes | None:
    """The file's bytes, ``None`` where it is absent.

    ``name`` is what a diagnostic calls it. Raises FusecError FUS102 (JSON) or FUS104 where
    it cannot be read or is larger than ``limit`` bytes."""
    code = "FUS102" if name.endswith(".json") else "FUS104"
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise refuse(code, f"{name} is not a regular file.")
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise refuse(code, f"{name} cannot be read: {error.strerror or error}.") from None
    if len(data) > limit:
        raise refuse(code, f"{name} is larger than {limit // 2**20} MiB.", hint="This is no file that fusec can read.")
    return data


def decode_source(data: bytes, name: str) -> str:
    """Python text from bytes, with line ends normalised to ``\\n``.

    Raises FusecError FUS105 with the line and column of the first byte that is not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rsplit(b"\n", 1)[-1].decode("utf-8", "replace")) + 1
        raise refuse("FUS105", "The file is not UTF-8 text.", Place(name, line, column)) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode_json(data: bytes, name: str, code: str = "FUS102") -> dict[str, Any]:
    """A JSON object from bytes.

    Raises FusecError of ``code`` with line and column where the text is not JSON."""
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise refuse(code, "The file is not UTF-8 text.", Place(name, line)) from None
    except json.JSONDecodeError as error:
        raise refuse(
            code,
            f"The file is not valid JSON: {error.msg}.",
            Place(name, error.lineno, error.colno),
            "Correct the file; transformers could not load it either.",
        ) from None
    except (ValueError, RecursionError):
        raise refuse(
            code, "The file's JSON is nested too deeply or has a number too long to read.", Place(name, 1)
        ) from None
    if not isinstance(value, dict):
        raise refuse(code, "The file's JSON is not an object.", Place(name, 1), 'It must start with "{".')
    return value


def read_config(files: Files) -> dict[str, Any] | None:
    """``config.json`` of a checkpoint, ``None`` where there is none."""
    data = files.read("config.json", MAX_CONFIG_BYTES)
    return None if data is None else decode_json(data, "config.json")


def read_tensors(folder: Path) -> dict[str, TensorSpec] | None:
    """Tensor names, shapes and dtypes from a folder's safetensors headers; no tensor data is read.

    Shards that the index names but the folder lacks give names alone. ``None`` where the
    folder has neither an index nor a single safetensors file. Raises FusecError FUS107."""
    index = read_bytes(folder / INDEX, INDEX, MAX_CONFIG_BYTES)
    if index is not None:
        tensors = tensors_of_index(decode_json(index, INDEX, "FUS107"))
        weight_map = json.loads(index)["weight_map"]
        for shard in sorted(set(weight_map.values())):
            path = folder / shard
            if path.is_file():
                tensors.update({k: v for k, v in read_header(path).items() if k in tensors})
        return tensors
    single = folder / SINGLE
    return read_header(single) if single.is_file() else None


def tensors_of_index(index: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The tensor names of a safetensors index. Raises FusecError FUS107 where it is malformed."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(is_file_name(v) for v in weight_map.values()):
        raise refuse(
            "FUS107",
            "The safetensors index has no weight_map from tensor names to file names.",
            Place(INDEX, 1),
        )
    return {name: TensorSpec(None, None) for name in weight_map}


def read_header(path: Path) -> dict[str, TensorSpec]:
    """The header of one safetensors file. Raises FusecError FUS107 where it is malformed."""
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > MAX_HEADER_BYTES:
                raise ValueError("its header is too large")
            header = json.loads(stream.read(length))
        return {
            name: TensorSpec(tuple(int(n) for n in entry["shape"]), str(entry["dtype"]))
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise refuse("FUS107", f"{path.name} is not a readable safetensors file: {error}.") from None
