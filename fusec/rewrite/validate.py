"""Proves a rendered ``__init__`` against the trace: what the port's attributes hold is what the source's held.

The text is interpreted like a source, with the engine's layers as unknown objects that
remember their arguments. Whatever the port's forward reads, and whatever a pattern said a
constructor argument must be, is compared with the traced module, instance by instance: a
value that the source changes from elsewhere, or a name that means something else in the
port, shows as a difference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from fusec.diagnostics import Place, refuse
from fusec.graph.interp import Frame, Raised
from fusec.graph.tracer import Tracer
from fusec.graph.values import CallFrame, ClassValue, External, Instance, Sym, Tensor, deep_plain, plain
from fusec.match.unit import Assign
from fusec.rewrite.lower import Lowering
from fusec.target.symbols import SYMBOLS

RANK = "<this rank's share>"
"""The expression of a value that only a running rank knows."""


class _Port(Tracer):
    """Interprets the text of a port's class: engine layers and other classes are opaque objects."""

    def lookup(self, name: str, node: ast.AST, frame: Frame) -> Any:
        if name in SYMBOLS or name in ("get_rotary",):
            return External(f"engine.{name}")
        return super().lookup(name, node, frame)

    def unknown_call(self, path: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        if path.startswith("engine."):
            made = Instance(External(path))
            made.attrs.update({f"arg{i}": a for i, a in enumerate(args)}, **kwargs)
            return made
        return super().unknown_call(path, args, kwargs, node, frame)

    def instantiate(self, cls: ClassValue, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        return Instance(External("engine.port"))

    def instance_attribute(self, obj: Instance, name: str, node: ast.AST, frame: Frame) -> Any:
        if isinstance(obj.cls, External) and obj.cls.path.startswith("engine.") and name not in obj.attrs:
            return Sym(1, RANK)
        return super().instance_attribute(obj, name, node, frame)


def validate_init(
    lines: list[str],
    lowering: Lowering,
    instance: Instance,
    reads: Iterable[str],
    assigns: Iterable[Assign],
    place: Place,
) -> None:
    """Raise FusecError FUS401 where the rendered ``__init__`` gives this instance another value than the source."""
    graph = lowering.ctx.graph
    assert isinstance(instance.cls, ClassValue)
    assert instance.ctor is not None
    port = _Port(lowering.ctx.library, graph.config)
    port.scopes = dict(graph.scopes)
    node = ast.parse("\n".join(lines)).body[0]
    assert isinstance(node, ast.FunctionDef)
    made = Instance(External("port"))
    names: dict[str, Any] = {**instance.ctor.arguments, "self": made}
    names.update({"cache_config": None, "quant_config": None, "prefix": "layers.0"})
    for name, value in list(names.items()):
        if isinstance(value, Instance) and value.cls == External("config"):
            names[name] = port.config_object(graph.config, "config")
    port.current = CallFrame(-1, None, None, None, None)
    frame = Frame(instance.cls.scope, names, None, None, port.current)
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call))]
    try:
        port.exec_block(body, frame)
    except Raised as raised:
        raise refuse(
            "FUS401",
            f"The __init__ that {instance.class_name} would have in the port fails: {raised.value}.",
            place,
            "It reads something that is set outside of __init__.",
        ) from None
    given = {a.attr: a for a in assigns}
    for attr in sorted(set(reads) - set(given)):
        held = instance.attrs.get(attr)
        if attr not in made.attrs:
            raise refuse("FUS401", f"{instance.class_name} reads self.{attr}, which its __init__ does not set.", place)
        if not isinstance(plain(held), Instance | Tensor) and not same(held, made.attrs[attr]):
            raise refuse(
                "FUS401",
                f"self.{attr} of {instance.path or instance.class_name} is {deep_plain(held)!r} in the source, but its "
                f"__init__ alone would give {deep_plain(made.attrs[attr])!r}.",
                place,
                "It is set from elsewhere, or depends on something that the port changes.",
            )
    for assign in given.values():
        layer = made.attrs.get(assign.attr)
        for name, expected in assign.expects:
            got = layer.attrs.get(name) if isinstance(layer, Instance) else None
            if not same(expected, got):
                raise refuse(
                    "FUS401",
                    f"self.{assign.attr} of {instance.path or instance.class_name} would be built with "
                    f"{deep_plain(got)!r}, where the source has {deep_plain(expected)!r}.",
                    place,
                )


def same(expected: Any, got: Any) -> bool:
    """Equal values, the second one known without a running rank."""
    if type(got) is Sym and RANK in got.expr:
        return False
    return bool(deep_plain(expected) == deep_plain(got))
