"""Source text for values: how a pattern fills a constructor from its bindings."""

from __future__ import annotations

import ast
from typing import Any

from fusec.graph.axes import Size
from fusec.graph.interp import size_of
from fusec.graph.values import Instance, Sym, deep_plain
from fusec.match.unit import RANK_ATTRIBUTES


def attribute_of(owner: Instance, value: Any) -> str | None:
    """The attribute under which ``owner`` holds this object."""
    return next((name for name, held in owner.attrs.items() if held is value), None) if value is not None else None


def size_text(owner: Instance | None, size: Size) -> str:
    """An expression for a size in the scope of ``owner.__init__``: one of its own attributes
    if it holds the size, otherwise the config symbols that the size is made of."""
    for name, held in (owner.attrs if owner is not None else {}).items():
        if name in RANK_ATTRIBUTES or name.startswith("_"):
            continue
        if type(held) is Sym and held.size is not None and held.size.same(size) and size.atoms:
            return f"self.{name}"
    if not size.atoms:
        return str(size.value)
    text = " * ".join(_factor(a) for a in size.atoms)
    if size.factor.numerator != 1:
        text = f"{size.factor.numerator} * {text}"
    if size.factor.denominator != 1:
        text = f"({text}) // {size.factor.denominator}"
    return text


def _factor(atom: str) -> str:
    return atom if atom.replace(".", "").replace("_", "").isalnum() or atom.endswith("]") else f"({atom})"


def argument_text(owner: Instance, child: Instance, name: str) -> str:
    """How the source writes a constructor argument of ``child``; where it leaves it to a
    default or makes the child elsewhere, the value's own expression."""
    assert child.ctor is not None
    value = child.ctor.arguments.get(name)
    call = child.ctor.node
    if call is not None and isinstance(owner.cls, object) and _in_class(owner, call):
        node = _argument(child, call, name)
        if node is not None and not _reads_rank_attributes(node):
            return ast.unparse(node)
    return value_text(value)


def _reads_rank_attributes(node: ast.expr) -> bool:
    """Whether an expression reads an attribute that means something else in the port."""
    return any(isinstance(n, ast.Attribute) and n.attr in RANK_ATTRIBUTES for n in ast.walk(node))


def value_text(value: Any) -> str:
    """The expression of a value over the config, or its literal."""
    if type(value) is Sym:
        return value.expr
    size = size_of(value)
    if size is not None and size.atoms:
        return " * ".join(_factor(a) for a in size.atoms)
    return repr(deep_plain(value))


def _in_class(owner: Instance, call: ast.Call) -> bool:
    node = getattr(owner.cls, "node", None)
    return node is not None and node.lineno <= call.lineno <= (node.end_lineno or call.lineno)


def _argument(child: Instance, call: ast.Call, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    assert child.ctor is not None
    order = list(child.ctor.arguments)
    if name in order and order.index(name) < len(call.args):
        node = call.args[order.index(name)]
        return None if isinstance(node, ast.Starred) else node
    return None


def fused_name(attrs: tuple[str, ...]) -> str:
    """The usual name of a fused projection: ``q_proj, k_proj, v_proj`` give ``qkv_proj``,
    ``gate_proj, up_proj`` give ``gate_up_proj``."""
    endings = {a[a.rfind("_") :] if "_" in a else "" for a in attrs}
    suffix = endings.pop() if len(endings) == 1 else ""
    stems = [a[: len(a) - len(suffix)] if suffix else a for a in attrs]
    joiner = "" if all(len(s) == 1 for s in stems) else "_"
    return joiner.join(stems) + suffix
