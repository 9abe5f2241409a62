"""Exact unification of a pattern's traced reference with a part of a traced model.

Both sides are brought to one spelling on the fly (``pow(x, 2)`` is ``x * x``,
``pow(x, -0.5)`` and ``1 / sqrt(x)`` are ``rsqrt``; casts that change nothing and
``contiguous`` disappear), operands of commuting operations are tried both ways, and
variables bind to tensors or numbers. A cast that changes the dtype is an operation like
any other: where it stands decides how results round.
"""

from __future__ import annotations

from typing import Any

from fusec.graph.ops import OPS
from fusec.graph.values import External, Instance, Sym, Tensor, deep_plain, plain

Bindings = dict[str, Any]


def unify(reference: Any, target: Any, bindings: Bindings) -> Bindings | None:
    """The bindings that make ``reference`` equal ``target``, or ``None``."""
    if isinstance(reference, Tensor):
        if not isinstance(target, Tensor):
            return None
        return _unify_tensors(reference, target, bindings)
    if isinstance(target, Tensor):
        return None
    if type(reference) is Sym and reference.expr.startswith("?"):
        return _bind(reference.expr[1:], target, bindings)
    if isinstance(reference, list | tuple) and isinstance(plain(target), list | tuple):
        items = plain(target)
        if len(reference) != len(items):
            return None
        for r, t in zip(reference, items, strict=True):
            found = unify(r, t, bindings)
            if found is None:
                return None
            bindings = found
        return bindings
    if isinstance(reference, Instance) or isinstance(target, Instance):
        return bindings  # the module that made a leaf is not part of what is computed
    return bindings if _same_constant(reference, target) else None


def _unify_tensors(reference: Tensor, target: Tensor, bindings: Bindings) -> Bindings | None:
    reference, target = strip(reference), strip(target)
    name = reference.node.args.get("name") if reference.node.op == "input" else None
    if isinstance(name, str) and name.startswith("?"):
        if [s.value for s in reference.shape] != [s.value for s in target.shape]:
            return None
        return _bind(name[1:], target, bindings)
    if reference.index != target.index:
        return None
    op, args = spelled(reference)
    target_op, target_args = spelled(target)
    if op != target_op:
        return None
    attempts = [target_args]
    if OPS[op].commutes:
        attempts.append({"input": target_args["other"], "other": target_args["input"]})
    for attempt in attempts:
        found = _unify_args(args, attempt, bindings)
        if found is not None:
            return found
    return None


def _unify_args(args: dict[str, Any], target: dict[str, Any], bindings: Bindings) -> Bindings | None:
    for key in args.keys() | target.keys():
        if key == "module":
            continue
        found = unify(args.get(key), target.get(key), bindings)
        if found is None:
            return None
        bindings = found
    return bindings


def _bind(name: str, value: Any, bindings: Bindings) -> Bindings | None:
    if name in bindings:
        known = bindings[name]
        if isinstance(known, Tensor) or isinstance(value, Tensor):
            same = isinstance(known, Tensor) and isinstance(value, Tensor) and strip(known) is strip(value)
        else:
            same = deep_plain(known) == deep_plain(value)
        return bindings if same else None
    return {**bindings, name: value}


def strip(t: Tensor) -> Tensor:
    """Look through casts that change nothing and memory-layout requests."""
    while True:
        node = t.node
        if node.op == "contiguous" or (node.op == "cast" and node.args["input"].dtype == t.dtype):
            t = node.args["input"]
        else:
            return t


def spelled(t: Tensor) -> tuple[str, dict[str, Any]]:
    """The operation and arguments of a tensor's node in the one spelling that is compared."""
    op, args = t.node.op, t.node.args
    if op == "square":
        return "mul", {"input": args["input"], "other": args["input"]}
    if op == "pow" and isinstance(args["input"], Tensor):
        exponent = plain(args["other"])
        if exponent == 2:
            return "mul", {"input": args["input"], "other": args["input"]}
        if exponent == -0.5:
            return "rsqrt", {"input": args["input"]}
        if exponent == 0.5:
            return "sqrt", {"input": args["input"]}
    if op == "div" and plain(args["input"]) in (1, 1.0) and isinstance(args["other"], Tensor):
        under = strip(args["other"])
        if spelled(under)[0] == "sqrt":
            return "rsqrt", {"input": spelled(under)[1]["input"]}
    if op == "reciprocal":
        under = strip(args["input"])
        if spelled(under)[0] == "sqrt":
            return "rsqrt", {"input": spelled(under)[1]["input"]}
    if op in ("mean", "sum", "amax"):
        dim = deep_plain(args.get("dim"))
        rank = len(args["input"].shape)
        dims = [d % rank for d in (dim if isinstance(dim, list | tuple) else [dim])] if dim is not None else None
        return op, {"input": args["input"], "dim": dims, "keepdim": bool(plain(args.get("keepdim", False)))}
    return op, args


def _same_constant(a: Any, b: Any) -> bool:
    a, b = deep_plain(a), deep_plain(b)
    if isinstance(a, External) and isinstance(b, External):
        return a.path.rpartition(".")[2] == b.path.rpartition(".")[2]
    if isinstance(a, slice) and isinstance(b, slice):
        return all(deep_plain(getattr(a, p)) == deep_plain(getattr(b, p)) for p in ("start", "stop", "step"))
    return (type(a) is type(b) and a == b) or (isinstance(a, int | float) and isinstance(b, int | float) and a == b)
