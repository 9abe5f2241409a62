"""What a strict dataclass declares: its fields, their defaults, and the types it checks.

transformers 5 configurations are dataclasses whose fields are type-checked on every
assignment. The annotations are read as syntax; one that is not understood accepts anything,
as the library's own check does for what it cannot resolve.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fusec.graph.values import Instance, ModuleScope


class Missing:
    """No default."""


MISSING = Missing()


@dataclass(frozen=True)
class FieldSpec:
    """What ``dataclasses.field`` or a validated field returns inside an interpreted class body."""

    default: Any = MISSING
    factory: Any = MISSING
    validators: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Field:
    """One field of a configuration class."""

    name: str
    spec: FieldSpec
    annotation: ast.expr = field(repr=False)
    scope: ModuleScope = field(repr=False)
    checked: bool


def is_class_var(annotation: ast.expr) -> bool:
    head = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    name = head.attr if isinstance(head, ast.Attribute) else getattr(head, "id", None)
    if isinstance(head, ast.Constant) and isinstance(head.value, str):
        return head.value.lstrip().startswith(("ClassVar", "typing.ClassVar"))
    return name == "ClassVar"


def postpones_annotations(tree: ast.Module) -> bool:
    """Whether the file's annotations are strings at run time, which the library does not check."""
    return any(
        isinstance(s, ast.ImportFrom) and s.module == "__future__" and any(n.name == "annotations" for n in s.names)
        for s in tree.body
    )


def type_problem(value: Any, annotation: ast.expr) -> str | None:
    """Why a value does not have the annotated type, ``None`` if it does or if that cannot be said."""
    return None if _accepts(value, annotation) else f"expected {ast.unparse(annotation)}, got {_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _accepts(value: Any, note: ast.expr) -> bool:
    if isinstance(note, ast.Constant):
        return value is None if note.value is None else True
    if isinstance(note, ast.BinOp) and isinstance(note.op, ast.BitOr):
        return _accepts(value, note.left) or _accepts(value, note.right)
    if isinstance(note, ast.Name | ast.Attribute):
        return _SIMPLE.get(_name(note), _anything)(value)
    if isinstance(note, ast.Subscript):
        arguments = note.slice.elts if isinstance(note.slice, ast.Tuple) else [note.slice]
        return _generic(value, _name(note.value), arguments)
    return True


def _name(note: ast.expr) -> str:
    return note.attr if isinstance(note, ast.Attribute) else getattr(note, "id", "")


def _anything(value: Any) -> bool:
    return True


def _is(kind: type | tuple[type, ...]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


# ``RopeParameters`` is a TypedDict: instance checks of it fail, and its place is always beside ``dict``.
_SIMPLE: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": _is(float),
    "str": _is(str),
    "bool": _is(bool),
    "list": _is(list),
    "List": _is(list),
    "dict": _is(dict),
    "Dict": _is(dict),
    "tuple": _is(tuple),
    "set": _is(set),
    "Sequence": _is((list, tuple, str, range)),
    "RopeParameters": lambda value: False,
    "PreTrainedConfig": _is(Instance),
}


def _generic(value: Any, name: str, arguments: list[ast.expr]) -> bool:
    match name:
        case "Optional":
            return value is None or _accepts(value, arguments[0])
        case "Union":
            return any(_accepts(value, a) for a in arguments)
        case "Literal":
            choices = [a.value for a in arguments if isinstance(a, ast.Constant)]
            return any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in choices)
        case "list" | "List":
            return isinstance(value, list) and all(_accepts(v, arguments[0]) for v in value)
        case "Sequence":
            return isinstance(value, list | tuple | str) and all(_accepts(v, arguments[0]) for v in value)
        case "set" | "Set":
            return isinstance(value, set) and all(_accepts(v, arguments[0]) for v in value)
        case "dict" | "Dict":
            return isinstance(value, dict) and all(
                _accepts(k, arguments[0]) and _accepts(v, arguments[1]) for k, v in value.items()
            )
        case "tuple" | "Tuple":
            if not isinstance(value, tuple):
                return False
            last = arguments[-1]
            if len(arguments) == 2 and isinstance(last, ast.Constant) and last.value is ...:
                return all(_accepts(v, arguments[0]) for v in value)
            return len(value) == len(arguments) and all(map(_accepts, value, arguments))
    return True
