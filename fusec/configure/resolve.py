"""From ``config.json`` to the configuration that the model class would see."""

from __future__ import annotations

import ast
import copy
from typing import Any

from fusec.configure.interp import ConfigInterpreter, Rejected
from fusec.configure.slow import import_config
from fusec.configure.types import Config
from fusec.diagnostics import Diagnostic, FusecError, Place, refuse
from fusec.graph.interp import Frame, Raised
from fusec.graph.values import ClassValue, External, Instance
from fusec.read.library import installed_library
from fusec.read.tables import auto_tables
from fusec.read.types import Checkpoint

_NOWHERE = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
_SPECIAL_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
# A configuration source that says one of these is beyond the interpreter; nothing is wrong with the config.
_BEYOND = ("FUS301", "FUS302", "FUS303", "FUS304")


class _Unsure(Exception):
    """Interpreting did not come to an end that the class itself would surely come to."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(f"{diagnostic.place}: {diagnostic.message}" if diagnostic.place else diagnostic.message)


def resolve_config(checkpoint: Checkpoint) -> Config:
    """The configuration of a checkpoint, by interpreting its class and all that the class inherits.

    Where the class uses a construct beyond the interpreter and is the installed
    transformers' own, it is imported in another process (``Config.slow_path`` says why);
    the class of a checkpoint or of ``--source`` never is. Raises FusecError FUS201 for such
    a class, and FUS202 where the class itself rejects the values."""
    values = {key: _decode_floats(value) for key, value in copy.deepcopy(dict(checkpoint.config)).items()}
    if "self" in values:
        raise refuse("FUS202", '"self" is no key of a configuration.', Place("config.json", 1))
    try:
        return _interpret(checkpoint, values)
    except _Unsure as unsure:
        if installed_library().find(checkpoint.configuration.module) is not checkpoint.configuration:
            raise FusecError(unsure.diagnostic) from None
        module, why = checkpoint.configuration.module, str(unsure)
        return import_config(module, checkpoint.config_class, dict(checkpoint.config), why)


def _interpret(checkpoint: Checkpoint, values: dict[str, Any]) -> Config:
    """Construct the configuration as interpreted code. Raises FusecError FUS202, or :class:`_Unsure`."""
    interp = ConfigInterpreter(checkpoint.library, auto_tables(checkpoint.library))
    name = checkpoint.config_class
    try:
        scope = interp.load(checkpoint.configuration)
        frame = Frame(scope, scope.names)
        cls = interp.lookup(name, _NOWHERE, frame)
        if not isinstance(cls, ClassValue) or interp.base_of(cls) is None:
            raise refuse(
                "FUS201",
                f"{name} does not derive from transformers' configuration class.",
                Place(checkpoint.configuration.name, 1),
            )
        return _freeze(interp, interp.call(cls, [], values, _NOWHERE, frame), set())
    except Raised as raised:
        place = Place(raised.span.file, raised.span.line, raised.span.col + 1) if raised.span else None
        diagnostic = Diagnostic(
            "FUS202",
            f"{name} rejects the configuration: {_said(raised.value)}",
            place,
            "Correct config.json; transformers rejects it for the same reason.",
        )
        if isinstance(raised, Rejected) or isinstance(raised.node, ast.Raise):
            raise FusecError(diagnostic) from None
        if isinstance(raised.value, ImportError):
            raise _Unsure(_beyond(name, f"{_said(raised.value)}.", place)) from None
        raise _Unsure(diagnostic) from None
    except FusecError as error:
        first = error.diagnostics[0]
        if first.code in _BEYOND:
            raise _Unsure(_beyond(name, first.message, first.place)) from None
        raise
    except RecursionError:
        raise refuse("FUS202", "The configuration is nested too deeply.", Place("config.json", 1)) from None


def _beyond(name: str, why: str, place: Place | None) -> Diagnostic:
    return Diagnostic(
        "FUS201",
        f"The configuration class {name} cannot be interpreted: {why}",
        place,
        "fusec never imports a class that is not the installed transformers' own; write it in simpler Python.",
    )


def _said(value: object) -> str:
    """What an interpreted exception says."""
    text = str(value.args[0]) if isinstance(value, BaseException) and value.args else type(value).__name__
    return text if not isinstance(value, KeyError | ArithmeticError) else f"{type(value).__name__}: {text}"


def _freeze(interp: ConfigInterpreter, obj: Instance, seen: set[int]) -> Config:
    """An interpreted configuration object as plain data."""
    seen = seen | {id(obj)}
    values: dict[str, Any] = {}
    for name, value in interp.readable(obj, obj.cls.scope):
        if name == "per_layer_config":
            if "_heterogeneity_spec" in obj.attrs:
                layers = interp.iterate(value, _NOWHERE, Frame(obj.cls.scope, {}))
                values[name] = tuple(_freeze(interp, layer, seen) for layer in layers)
            continue
        plain = _plain(interp, value, seen)
        if plain is not _OPAQUE:
            values[name] = plain
    return Config(obj.cls.name, obj.cls.scope.name, values, dict(interp.attribute_map(obj.cls)))


_OPAQUE = object()


def _plain(interp: ConfigInterpreter, value: Any, seen: set[int]) -> Any:
    """A value without interpreter objects; ``_OPAQUE`` for one that is no data (a class, a view)."""
    if isinstance(value, Instance):
        known = interp.base_of(value.cls) is not None and id(value) not in seen
        return _freeze(interp, value, seen) if known else _OPAQUE
    if isinstance(value, External | ClassValue):
        return _OPAQUE
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(interp, v, seen) for v in value]
        return _OPAQUE if any(i is _OPAQUE for i in items) else type(value)(items)
    if isinstance(value, dict):
        pairs = {k: _plain(interp, v, seen) for k, v in value.items()}
        return _OPAQUE if any(v is _OPAQUE for v in pairs.values()) else pairs
    return value


def _decode_floats(value: Any) -> Any:
    """transformers writes floats that JSON lacks as ``{"__float__": "Infinity"}``."""
    if isinstance(value, dict):
        if set(value) == {"__float__"} and value["__float__"] in _SPECIAL_FLOATS:
            return _SPECIAL_FLOATS[value["__float__"]]
        return {k: _decode_floats(v) for k, v in value.items()}
    return [_decode_floats(v) for v in value] if isinstance(value, list) else value
