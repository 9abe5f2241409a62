"""Configuration values as JSON and back: tuples, sets, non-string keys and nested configs survive."""

from __future__ import annotations

from typing import Any

from fusec.configure.types import Config

_TAG = "__fusec__"


def encode(value: Any) -> Any:
    """A JSON value that :func:`decode` turns back; objects of other types become their ``repr``."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, tuple):
        return {_TAG: "tuple", "items": [encode(v) for v in value]}
    if isinstance(value, set | frozenset):
        return {_TAG: "set", "items": [encode(v) for v in sorted(value, key=repr)]}
    if isinstance(value, dict):
        if all(isinstance(k, str) for k in value) and _TAG not in value:
            return {k: encode(v) for k, v in value.items()}
        return {_TAG: "dict", "items": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, Config):
        return {
            _TAG: "config",
            "cls": value.cls,
            "module": value.module,
            "values": encode(dict(value.values)),
            "attribute_map": dict(value.attribute_map),
        }
    return {_TAG: "opaque", "text": repr(value)}


def decode(value: Any, slow_path: str | None = None) -> Any:
    """The value behind :func:`encode`'s JSON; ``slow_path`` is noted on every config in it."""
    if isinstance(value, list):
        return [decode(v, slow_path) for v in value]
    if not isinstance(value, dict):
        return value
    match value.get(_TAG):
        case None:
            return {k: decode(v, slow_path) for k, v in value.items()}
        case "tuple":
            return tuple(decode(v, slow_path) for v in value["items"])
        case "set":
            return {decode(v, slow_path) for v in value["items"]}
        case "dict":
            return {decode(k, slow_path): decode(v, slow_path) for k, v in value["items"]}
        case "config":
            values = decode(value["values"], slow_path)
            return Config(value["cls"], value["module"], values, value["attribute_map"], slow_path)
    return value["text"]
