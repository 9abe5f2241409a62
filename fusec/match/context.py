"""Questions about a traced graph that patterns ask: users, bases, dependence, values.

``base`` looks through operations that only move elements, so that two spellings of one
layout are the same value. ``evaluate`` runs a part of the graph on numpy arrays: patterns
*propose* by structure and *confirm* by value, at convert time and without torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fusec.diagnostics import Place, refuse
from fusec.graph.ops import OPS, evaluate
from fusec.graph.tracer import Graph, Tracer
from fusec.graph.values import CallFrame, ClassValue, External, Function, Instance, Node, Sym, Tensor, deep_plain, plain
from fusec.read.types import Library, Source

REFERENCE_NAMES = {
    "torch": "torch",
    "F": "torch.nn.functional",
    "ACT2FN": "transformers.activations.ACT2FN",
}
"""The names that a pattern's reference functions may use."""
ORDER_KEEPING = frozenset({"view", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous"})
"""Layout operations after which all elements stand in the same flat order."""


class Context:
    """A traced graph with its indices. Built once per conversion; read-only."""

    def __init__(self, graph: Graph, library: Library) -> None:
        self.graph = graph
        self.library = library
        self.users: dict[int, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for t in node.tensors():
                self.users[id(t)].append(node)
        self.row_cache: dict[Any, Any] = {}
        self._bases: dict[int, tuple[Tensor, Tensor]] = {}
        self.by_id = {node.id: node for node in graph.nodes}
        self._depends: dict[int, frozenset[int]] = {}
        self._owner: dict[int, CallFrame] = {}
        self._nodes_by_owner: dict[int, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            self._nodes_by_owner[self.owner(node).id].append(node)
        self._references: dict[str, Tracer] = {}
        self._children: dict[int, list[CallFrame]] = defaultdict(list)
        for frame in graph.frames:
            parent = self.caller(frame) if frame.is_module else None
            if parent is not None:
                self._children[parent.id].append(frame)

    # ------------------------------------------------------------------ structure

    def owner(self, node: Node) -> CallFrame:
        """The forward call of the module that the node belongs to, helpers looked through."""
        frame: CallFrame = node.frame
        while not frame.is_module and frame.parent is not None:
            frame = frame.parent
        return frame

    def own_nodes(self, frame: CallFrame) -> list[Node]:
        """The nodes of a module's forward and its helpers, without those of submodules."""
        return self._nodes_by_owner[frame.id]

    @staticmethod
    def class_attribute(module: Instance, name: str) -> Any:
        """A constant of an interpreted class, along its bases; ``None`` where there is none."""
        pending = [module.cls]
        while pending:
            cls = pending.pop(0)
            if isinstance(cls, ClassValue):
                if name in (cls.namespace or {}):
                    return plain((cls.namespace or {})[name])
                pending = [*cls.bases, *pending]
        return None

    def caller(self, frame: CallFrame) -> CallFrame | None:
        """The module call from which a module's forward was called."""
        parent = frame.parent
        while parent is not None and not parent.is_module:
            parent = parent.parent
        return parent

    def child_calls(self, frame: CallFrame) -> list[CallFrame]:
        """The module calls made directly from a module's forward, in order."""
        return self._children.get(frame.id, [])

    def raw_base(self, t: Tensor) -> Tensor:
        """The tensor behind layout operations that keep all elements, in whatever order."""
        while True:
            node = t.node
            row = OPS[node.op]
            if node.op == "cast" and node.args["input"].dtype == t.dtype:
                t = node.args["input"]
            elif row.kind == "layout" and node.op not in ("cat", "stack") and len(node.outputs) == 1:
                source = node.args["input"]
                if _count(source) != _count(t) or any(x is not source for x in node.tensors()):
                    return t  # a selection or a repetition is not the whole value
                t = source
            else:
                return t

    def base(self, t: Tensor) -> Tensor:
        """The tensor that ``t`` is, element for element in the same flat order: two layouts of one value.

        A chain of layout operations that reorders elements is looked through only if it ends where it began."""
        known = self._bases.get(id(t))
        if known is not None:
            return known[1]
        found = source = self.raw_base(t)
        if source is not t and not self._keeps_order(t, source):
            found = t
            while found.node.op in ORDER_KEEPING or (
                found.node.op == "cast" and found.node.args["input"].dtype == found.dtype
            ):
                found = found.node.args["input"]
        self._bases[id(t)] = (t, found)
        return found

    def _keeps_order(self, t: Tensor, source: Tensor) -> bool:
        step = t
        while step is not source:
            if step.node.op not in ORDER_KEEPING and step.node.op != "cast":
                break
            step = step.node.args["input"]
        else:
            return True
        index = np.arange(_count(source))
        moved = self.evaluate(t, {id(source): index.reshape(self.shape(source))})
        return bool((np.asarray(moved).reshape(-1) == index).all())

    def depends(self, t: Tensor) -> frozenset[int]:
        """The ids of source nodes (inputs, parameters, created tables) that the tensor is computed from."""
        known = self._depends.get(t.node.id)
        if known is not None:
            return known
        stack = [t.node]
        while stack:
            node = stack[-1]
            if node.id in self._depends:
                stack.pop()
                continue
            pending = [x.node for x in node.tensors() if x.node.id not in self._depends]
            if pending:
                stack.extend(pending)
                continue
            inputs = list(node.tensors())
            found: frozenset[int] = (
                frozenset().union(*(self._depends[x.node.id] for x in inputs)) if inputs else frozenset({node.id})
            )
            self._depends[node.id] = found
            stack.pop()
        return self._depends[t.node.id]

    def from_positions(self, t: Tensor) -> bool:
        return self.graph.positions.node.id in self.depends(t)

    def from_tokens(self, t: Tensor) -> bool:
        return self.graph.input_ids.node.id in self.depends(t)

    def upstream(self, targets: Iterable[Tensor], stop: Iterable[Tensor] = ()) -> set[int]:
        """Node ids on the way from ``stop`` (exclusive) to ``targets`` (inclusive)."""
        halt = {id(t) for t in stop}
        seen: set[int] = set()
        stack = [t for t in targets if id(t) not in halt]
        while stack:
            t = stack.pop()
            if t.node.id in seen:
                continue
            seen.add(t.node.id)
            stack.extend(x for x in t.node.tensors() if id(x) not in halt)
        return seen

    def signature(self, nodes: Iterable[int]) -> tuple[Any, ...]:
        """What a region computes, apart from where its inputs come from: equal for the layers that run one code."""
        return signature([self.by_id[i] for i in sorted(nodes)])

    # ------------------------------------------------------------------ values

    def evaluate(self, t: Tensor, given: dict[int, Any]) -> Any:
        """The array of ``t`` when the tensors with the given ids hold the given arrays.

        Raises FusecError FUS404 for a source that is not given."""
        memo = dict(given)
        stack = [t]
        while stack:
            x = stack[-1]
            if id(x) in memo:
                stack.pop()
                continue
            pending = [y for y in x.node.tensors() if id(y) not in memo]
            if pending:
                stack.extend(pending)
                continue
            if OPS[x.node.op].evaluate is None:
                span = x.node.span
                raise refuse(
                    "FUS404",
                    f"This computation also depends on a {x.node.op} ({x.node.args.get('name', '')}), "
                    "which keeps fusec from confirming it by value.",
                    Place(span.file, span.line, span.col + 1) if span else None,
                )
            arguments = {k: _arrays(v, memo) for k, v in x.node.args.items()}
            result = evaluate(OPS[x.node.op], arguments)
            if len(x.node.outputs) > 1:
                for out, value in zip(x.node.outputs, result, strict=True):
                    memo[id(out)] = value
            else:
                memo[id(x.node.outputs[0])] = np.asarray(result[0] if isinstance(result, tuple) else result)
            stack.pop()
        return memo[id(t)]

    def shape(self, t: Tensor) -> tuple[int, ...]:
        return tuple(s.value for s in t.shape)

    # ------------------------------------------------------------------ references

    def reference(self, source: Source, name: str, arguments: dict[str, Any]) -> Any:
        """Trace a pattern's reference function on variables; tensors are made by :meth:`variable`."""
        tracer = self._references.get(source.module)
        if tracer is None:
            tracer = Tracer(self.library, self.graph.config)
            names = tracer.load(source).names
            for known, path in REFERENCE_NAMES.items():
                names.setdefault(known, External(path))
            self._references[source.module] = tracer
        func = tracer.scopes[source.module].names[name]
        assert isinstance(func, Function)
        tracer.current = tracer.current or CallFrame(-1, None, None, None, None)
        return tracer.call_function(func, [], arguments, func.node, None)

    @staticmethod
    def variable(name: str, like: Tensor) -> Tensor:
        """A pattern variable with the shape and dtype of ``like``."""
        frame = CallFrame(-1, None, None, None, None)
        node = Node(-1, "input", {"name": f"?{name}"}, (), None, frame)
        out = Tensor(node, 0, like.shape, like.dtype)
        node.outputs = (out,)
        return out

    @staticmethod
    def scalar(name: str, value: float = 1.0) -> Sym:
        """A pattern variable for a number."""
        return Sym(value, f"?{name}")


def _count(t: Tensor) -> int:
    n = 1
    for s in t.shape:
        n *= s.value
    return n


def signature(nodes: list[Node]) -> tuple[Any, ...]:
    """What nodes in order compute; tensors from outside are told apart by shape and by which is which."""
    place = {node.id: i for i, node in enumerate(nodes)}
    outside: dict[int, int] = {}

    def shown(value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.node.id in place:
                return place[value.node.id], value.index
            number = outside.setdefault(id(value), len(outside))
            return "outside", number, tuple(s.value for s in value.shape), value.dtype
        if isinstance(value, list | tuple):
            return tuple(shown(v) for v in value)
        return repr(deep_plain(value))

    return tuple((n.op, tuple((k, shown(v)) for k, v in n.args.items() if k not in ("module", "owner"))) for n in nodes)


def _arrays(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return memo[id(value)]
    if isinstance(value, Instance):
        return value
    if isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
        return [_arrays(v, memo) for v in value]
    return plain(value)


def iter_tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a call argument: itself, or the elements of a tuple or list."""
    value = plain(value)
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from iter_tensors(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from iter_tensors(v)
