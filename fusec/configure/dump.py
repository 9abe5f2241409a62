"""Construct a configuration of transformers and print all of it as JSON: what the slow path runs as a process.

Standard input holds ``{"module": ..., "cls": ..., "values": {...}}``; the last line of
standard output holds ``{"config": ...}`` or ``{"error": "..."}``. Only this module imports transformers.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

from fusec.configure.plain import encode
from fusec.configure.types import Config


def dump(config: Any) -> Config:
    """Every attribute of a transformers configuration object that is no method."""
    from transformers import PretrainedConfig

    values: dict[str, Any] = {}
    for name in dict.fromkeys((*vars(config), *dir(config), *config.attribute_map)):
        if name.startswith("__"):
            continue
        try:
            value = getattr(config, name)
        except Exception:
            continue  # a property that fails for this configuration, as it would for the model
        if name == "per_layer_config":
            if config.is_heterogeneous:
                values[name] = tuple(map(dump, value))
            continue
        plain = _plain(value, PretrainedConfig)
        if not callable(value) and plain is not _OPAQUE:
            values[name] = plain
    return Config(type(config).__name__, type(config).__module__, values, dict(config.attribute_map))


_OPAQUE = object()


def _plain(value: Any, config_type: type) -> Any:
    """A value as plain data; ``_OPAQUE`` for an object that is none (a class, a view)."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, config_type):
        return dump(value)
    if isinstance(value, list | tuple | set):
        items = [_plain(v, config_type) for v in value]
        return _OPAQUE if any(i is _OPAQUE for i in items) else type(value)(items)
    if isinstance(value, dict):
        pairs = {k: _plain(v, config_type) for k, v in value.items()}
        return _OPAQUE if any(v is _OPAQUE for v in pairs.values()) else pairs
    text = str(value)
    return text.removeprefix("torch.") if text.startswith("torch.") else _OPAQUE


def main() -> None:
    request = json.load(sys.stdin)
    try:
        cls = getattr(importlib.import_module(request["module"]), request["cls"])
        answer = {"config": encode(dump(cls.from_dict(cls._decode_special_floats(request["values"]))))}
    except Exception as error:  # whatever the class raises is its verdict
        answer = {"error": " ".join(str(error).split())}
    sys.stdout.write("\n" + json.dumps(answer))
