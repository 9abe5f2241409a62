"""From the matched graph of one module's forward to the statements of its port.

Demand-driven: starting from what the forward returns, each needed value must come from a
matched unit, from a submodule that has a port, from an elementwise operation that means
the same on ``[tokens, ...]`` tensors, or from an argument. Anything else is a diagnostic
at the place of the operation. What nothing needs (masks, caches, dropout) is gone.

Statements keep the order, the names and the comments of the source. Names are checked by
liveness: a name is reused only where the value that it held is no longer needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fusec.diagnostics import Place, refuse
from fusec.graph.ops import OPS
from fusec.graph.values import CallFrame, ClassValue, Guard, Instance, Node, Span, Sym, Tensor, plain
from fusec.match.context import Context, iter_tensors
from fusec.match.sites import place_of
from fusec.match.text import attribute_of
from fusec.match.unit import RANK_ATTRIBUTES, Matches, Unit
from fusec.plan.types import FoldedCheck


@dataclass(frozen=True)
class Statement:
    """Lines of the port that stand for one unit. ``guards`` are (test, outcome) of the branches around it."""

    lines: tuple[str, ...]
    guards: tuple[tuple[str, bool], ...]
    comments: tuple[str, ...]
    unit: Unit
    source_lines: tuple[int, int] | None


@dataclass(frozen=True)
class Body:
    """A lowered forward: its tensor parameters by the source's names, statements, and returned names."""

    frame: CallFrame
    params: tuple[str, ...]
    statements: tuple[Statement, ...]
    returns: tuple[str, ...]
    positions: bool
    units: tuple[Unit, ...]
    guards: tuple[Guard, ...] = field(default=())
    """The branches on known values that the emitted statements stand under."""


class Lowering:
    """Lowers the forwards of one traced model; bodies are cached by call frame."""

    def __init__(self, ctx: Context, matches: Matches, texts: dict[str, list[str]]) -> None:
        self.ctx = ctx
        self.matches = matches
        self.texts = texts
        """Source lines by file name, for comments."""
        self.positional = positional_classes(ctx, matches)
        """Names of the classes whose forward takes the positions, in some layer at least."""
        self._bodies: dict[int, Body] = {}

    def agree(self, positional: set[str]) -> None:
        """Take over the signatures that all variants of the model need."""
        if positional != self.positional:
            self.positional = positional
            self._bodies.clear()

    def body(self, frame: CallFrame) -> Body:
        """The port of one forward call. Raises FusecError FUS401 for what cannot be carried over."""
        if frame.id not in self._bodies:
            self._bodies[frame.id] = self._lower(frame)
        return self._bodies[frame.id]

    def bodies(self) -> list[Body]:
        """All forwards lowered so far, submodules before their callers."""
        return list(self._bodies.values())

    # ------------------------------------------------------------------ which units

    def _lower(self, frame: CallFrame) -> Body:
        thread = self.matches.threads.get(frame.id)
        results = [thread.branch] if thread else list(_results(frame))
        if not results:
            raise refuse("FUS401", f"The forward of {_class(frame)} returns no tensor.", None)
        units, used = self.select(frame, results)
        order = self.schedule(units)
        statements, names = self.name(frame, order, results)
        params = tuple(n for n in frame.arguments if n in used)
        returns = tuple(names[id(self.ctx.base(r))] for r in results)
        if thread:
            returns = (*returns, "residual")
        positions = _class(frame) in self.positional
        guards = tuple(dict.fromkeys(g for u in order for g in self.guards_of(u)))
        return Body(frame, params, tuple(statements), returns, positions, tuple(order), guards)

    def select(
        self, frame: CallFrame, results: Iterable[Tensor], stop: Iterable[Tensor] = ()
    ) -> tuple[list[Unit], set[str]]:
        """The units that ``results`` need, and the parameters of the forward that they read."""
        ctx = self.ctx
        producers = {id(ctx.base(o)): u for u in self.matches.of(frame) for o in u.outputs}
        children = {id(ctx.base(t)): c for c in ctx.child_calls(frame) for t in _results(c)}
        arguments = {id(ctx.base(t)): n for n, v in frame.arguments.items() for t in iter_tensors(v)}
        halt = {id(ctx.base(t)) for t in stop}
        chosen: dict[int, Unit] = {}
        used: set[str] = set()
        pending = [ctx.base(t) for t in results]
        seen: set[int] = set()
        while pending:
            value = pending.pop()
            if id(value) in seen or id(value) in halt:
                continue
            seen.add(id(value))
            unit = producers.get(id(value))
            if unit is None and id(value) in arguments:
                used.add(arguments[id(value)])
                continue
            if unit is None and id(value) in children:
                unit = self.call_unit(frame, children[id(value)])
                producers.update({id(ctx.base(o)): unit for o in unit.outputs})
            if unit is None:
                unit = self.kept(frame, value)
            if id(unit) not in chosen:
                chosen[id(unit)] = unit
                pending.extend(ctx.base(t) for t in unit.inputs)
        return list(chosen.values()), used

    def schedule(self, units: list[Unit]) -> list[Unit]:
        """The order of the source where it respects the flow of values: a fused projection comes
        before all that reads one of its parts."""
        ctx = self.ctx
        producer = {id(ctx.base(o)): u for u in units for o in u.outputs}
        placed: list[Unit] = []

        def place(unit: Unit) -> None:
            if unit in placed:
                return
            for t in unit.inputs:
                before = producer.get(id(ctx.base(t)))
                if before is not None and before is not unit:
                    place(before)
            placed.append(unit)

        for unit in sorted(units, key=lambda u: (max(u.covers), u.pattern)):
            place(unit)
        return placed

    def call_unit(self, frame: CallFrame, child: CallFrame) -> Unit:
        """A call of a submodule that has a port of its own."""
        assert child.module is not None
        assert frame.module is not None
        if not isinstance(child.module.cls, ClassValue):
            raise refuse("FUS401", f"No pattern covers this use of {child.module.class_name}.", _place(child))
        body = self.body(child)
        attr = attribute_of(frame.module, child.module)
        if attr is None:
            raise refuse(
                "FUS401", f"{child.module.class_name} is called, but is no attribute of its caller.", _place(child)
            )
        inputs = tuple(t for p in body.params for t in iter_tensors(child.arguments[p]))
        arguments = (["positions"] if body.positions else []) + [f"{{in{i}}}" for i in range(len(inputs))]
        outputs = tuple(_results(child))
        covers = frozenset(t.node.id for t in outputs)
        code = f"{{out0}} = self.{attr}({', '.join(arguments)})"
        return Unit(
            "",
            frame,
            covers,
            inputs,
            outputs,
            (code,),
            hints=("hidden_states",),
            needs_positions=body.positions,
            call=True,
        )

    def kept(self, frame: CallFrame, value: Tensor) -> Unit:
        """An elementwise operation that no pattern took: it means the same on tokens, so it stays."""
        node = value.node
        owner = self.ctx.owner(node)
        if owner is not frame or OPS[node.op].kind not in ("pointwise", "cast"):
            raise refuse(
                "FUS401",
                f"No pattern covers this computation ({node.op}), and it is not known to mean the same in the port.",
                place_of(node),
                "Write a pattern for it: fusec patterns show NAME prints one to start from.",
            )
        inputs: list[Tensor] = []
        for t in node.tensors():
            if self.ctx.from_tokens(t) and not any(t is x for x in inputs):
                inputs.append(t)
            elif not self.ctx.from_tokens(t):
                raise refuse(
                    "FUS403", "This operation reads a parameter or table that the port does not own.", place_of(node)
                )
        shapes = {tuple(s.value for s in t.shape) for t in inputs}
        if len(shapes) > 1:
            raise refuse("FUS401", "This operation broadcasts tensors of different shapes.", place_of(node))
        text = self.expression(frame, node, inputs)
        return Unit(
            "",
            frame,
            frozenset({node.id}),
            tuple(inputs),
            (value,),
            (f"{{out0}} = {text}",),
            hints=("{in0}",),
            what=f"kept: {node.op}",
        )

    def expression(self, frame: CallFrame, node: Node, inputs: list[Tensor]) -> str:
        """The source form of an elementwise node over ``{in0}``..."""

        def operand(v: Any) -> str:
            if isinstance(v, Tensor):
                return f"{{in{next(i for i, t in enumerate(inputs) if t is v)}}}"
            return self.scalar(frame, v)

        args = node.args
        if node.op in _INFIX:
            return f"{operand(args['input'])} {_INFIX[node.op]} {operand(args['other'])}"
        if node.op == "neg":
            return f"-{operand(args['input'])}"
        if node.op == "act":
            kind = str(plain(args["kind"]))
            if type(args["kind"]) is Sym:  # written out by name, so the name must stay
                self.matches.checks.append(FoldedCheck(args["kind"].expr, kind, "the port spells this activation out"))
            if kind in _TORCH_ACTIVATIONS:
                return f"{_TORCH_ACTIVATIONS[kind]}({operand(args['input'])})"
        if node.op in _TORCH_UNARY:
            return f"torch.{node.op}({operand(args['input'])})"
        if node.op == "cast":
            dtype = args["dtype"].path
            if dtype == "torch.model":
                raise refuse(
                    "FUS401", "fusec cannot write a cast to the model's dtype outside of a pattern.", place_of(node)
                )
            return f"{operand(args['input'])}.to({dtype})"
        if node.op == "clamp":
            bounds = ", ".join(f"{k}={operand(args[k])}" for k in ("min", "max") if args.get(k) is not None)
            return f"torch.clamp({operand(args['input'])}, {bounds})"
        raise refuse("FUS401", f"fusec cannot write {node.op} in a port yet.", place_of(node))

    def scalar(self, frame: CallFrame, value: Any) -> str:
        """A known number in a forward: one of the module's attributes, or the config's expression."""
        if type(value) is Sym:
            assert frame.module is not None
            outer = {d.frame.id for d in (self.matches.decoder, self.matches.head) if d is not None}
            for name, held in frame.module.attrs.items():
                # the two outer classes of a port set none of the source's attributes but the config
                if frame.id in outer or name in RANK_ATTRIBUTES:
                    continue
                if type(held) is Sym and held.expr == value.expr:
                    return f"self.{name}"
            if value.layered:
                raise refuse("FUS401", f"{value.expr} differs by layer and is no attribute of its module.")
            text = re.sub(r"(?<![\w.])config\b", "self.config", value.expr)
            return text if re.fullmatch(r"[\w.]+", text) else f"({text})"
        return f"({value!r})" if isinstance(value, int | float) and value < 0 else repr(value)

    # ------------------------------------------------------------------ names

    def source_names(self, frame: CallFrame) -> dict[int, str]:
        """The source's own name for each value of a forward, by id of the value's base: the last one that it had.
        A reordered value (heads before tokens) lends its name to the value that it reorders."""
        out: dict[int, str] = {}
        handles: list[Tensor] = [t for v in frame.arguments.values() for t in iter_tensors(v)]
        for node in self.ctx.own_nodes(frame):
            handles.extend(node.outputs)
        for child in self.ctx.child_calls(frame):
            handles.extend(_results(child))
        for t in handles:
            named = [n for n, f in t.names if f is frame]
            if named:
                out[id(self.ctx.raw_base(t))] = named[-1]
        return out

    def name(
        self, frame: CallFrame, order: list[Unit], results: list[Tensor]
    ) -> tuple[list[Statement], dict[int, str]]:
        ctx = self.ctx
        known = self.source_names(frame)
        readers: dict[int, list[int]] = {}
        for i, unit in enumerate(order):
            for t in unit.inputs:
                readers.setdefault(id(ctx.base(t)), []).append(i)
        last = {v: max(r) for v, r in readers.items()}
        for r in results:
            last[id(ctx.base(r))] = len(order)
        names: dict[int, str] = {id(ctx.base(t)): n for n, v in frame.arguments.items() for t in iter_tensors(v)}
        holds: dict[str, int] = {n: v for v, n in names.items()}
        # what the port itself passes down keeps its name to the end
        own = [*(["positions"] if _class(frame) in self.positional else [])]
        own += ["residual"] if frame.id in self.matches.threads else []
        for reserved, taken in enumerate(own, 1):
            if taken in holds:
                raise refuse(
                    "FUS401", f"The forward of {_class(frame)} has a parameter {taken}, which the port needs itself."
                )
            holds[taken] = -reserved
            last[-reserved] = len(order)
        statements: list[Statement] = []
        shown: set[int] = set()
        for i, unit in enumerate(order):
            slots: dict[str, str] = {}
            for j, t in enumerate(unit.inputs):
                slots[f"in{j}"] = names[id(ctx.base(t))]
            for j, tmp in enumerate(unit.tmps):
                slots[f"tmp{j}"] = _free(tmp, holds, last, i)
            for j, out in enumerate(unit.outputs):
                value = id(ctx.base(out))
                wanted = known.get(value) or self.inherited(out, order, known)
                if wanted is None:
                    hint = unit.hints[j] if j < len(unit.hints) else "hidden_states"
                    wanted = hint.format(**slots)
                chosen = _free(wanted, holds, last, i, {id(ctx.base(t)) for t in unit.inputs})
                names[value] = chosen
                holds[chosen] = value
                slots[f"out{j}"] = chosen
            lines = tuple(line.format(**slots) for line in unit.code)
            guards = self.guards_of(unit)
            tests = tuple((self.test_text(g), g.outcome) for g in guards)
            span = self.span_of(unit)
            comments = self.comments(span, shown)
            where = (span.line, span.end_line) if span else None
            statements.append(Statement(lines, tests, comments, unit, where))
        return statements, names

    def inherited(self, value: Tensor, order: list[Unit], known: dict[int, str]) -> str | None:
        """For a value that the source leaves unnamed: the name of what is made from it alone, element for element."""
        for unit in order:
            if len(unit.inputs) == 1 and self.ctx.base(unit.inputs[0]) is self.ctx.base(value):
                out = unit.outputs[0]
                if len(unit.outputs) == 1 and _elements(out) == _elements(value):
                    return known.get(id(self.ctx.base(out))) or self.inherited(out, order, known)
        return None

    # ------------------------------------------------------------------ places in the source

    def guards_of(self, unit: Unit) -> tuple[Guard, ...]:
        """The branches of this forward that all of the unit's nodes stand under."""
        frame = unit.frame
        nodes = [self.ctx.by_id[i] for i in unit.covers]
        common: list[Guard] | None = None
        for n in nodes:
            own = [g for g in n.guards if g.frame is frame and isinstance(g.node, ast.If)]
            common = own if common is None else [g for g in common if g in own]
        return tuple(common or ())

    def test_text(self, guard: Guard) -> str:
        """The source's own test, which must read nothing but the module: locals of the source may be gone."""
        assert isinstance(guard.node, ast.If)
        names = {n.id for n in ast.walk(guard.node.test) if isinstance(n, ast.Name)}
        if not names <= {"self", "len", "bool", "int", "getattr", "hasattr"}:
            raise refuse(
                "FUS401",
                f"This branch reads {sorted(names - {'self'})[0]}, a local name, which the port may not have.",
                Place(guard.span.file, guard.span.line, guard.span.col + 1),
            )
        return ast.unparse(guard.node.test)

    def span_of(self, unit: Unit) -> Span | None:
        """Where the unit's last operation stands in its own forward, call sites of helpers included."""
        frame = unit.frame
        assert frame.func is not None
        for i in sorted(unit.covers, reverse=True):
            span = self.call_site(i, frame)
            if span is not None:
                statement = _statement(frame.func.node, span.line)
                if statement is not None:
                    return Span(frame.func.scope.file, statement.lineno, 0, statement.end_lineno or statement.lineno, 0)
        return None

    def call_site(self, node: int, frame: CallFrame) -> Span | None:
        """Where a node, or the call of the helper that it lies in, stands in a forward."""
        span = self.ctx.by_id[node].span
        inner: CallFrame | None = self.ctx.by_id[node].frame
        while inner is not None and inner is not frame:
            span = inner.span
            inner = inner.parent
        return span if inner is frame else None

    def lines_of(self, unit: Unit) -> set[int]:
        """The lines of the unit's forward on which its operations stand."""
        spans = (self.call_site(i, unit.frame) for i in unit.covers)
        return {line for s in spans if s is not None for line in range(s.line, s.end_line + 1)}

    def stands_under(self, unit: Unit, name: str) -> bool:
        """Whether the unit stands in an ``if`` whose test reads the given parameter of its forward."""
        func = unit.frame.func
        lines = self.lines_of(unit)
        return func is not None and any(
            isinstance(node, ast.If)
            and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.test))
            and lines <= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            for node in ast.walk(func.node)
        )

    def comments(self, span: Span | None, shown: set[int]) -> tuple[str, ...]:
        """The comment lines right above a statement, once; plain renamings (``a = b``) are looked over."""
        if span is None or span.line in shown or span.file not in self.texts:
            return ()
        shown.add(span.line)
        lines = self.texts[span.file]
        found: list[str] = []
        i = span.line - 2
        while i >= 0 and (lines[i].strip().startswith("#") or (_RENAMING.fullmatch(lines[i].strip()) and not found)):
            if lines[i].strip().startswith("#"):
                found.append(lines[i].strip())
            i -= 1
        return tuple(reversed(found))


_RENAMING = re.compile(r"\w+ = \w+")
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}
_TORCH_UNARY = frozenset("rsqrt sqrt exp log abs".split())
_TORCH_ACTIVATIONS = {
    "tanh": "torch.tanh",
    "sigmoid": "torch.sigmoid",
    "relu": "torch.relu",
    "silu": "nn.functional.silu",
    "gelu": "nn.functional.gelu",
}


def positional_classes(ctx: Context, matches: Matches) -> set[str]:
    """The classes of all modules in whose forward, or below it, a unit needs the positions."""
    out: set[str] = set()
    for units in matches.units.values():
        for unit in units:
            frame: CallFrame | None = unit.frame if unit.needs_positions else None
            while frame is not None:
                out.add(_class(frame))
                frame = ctx.caller(frame)
    return out


def _free(wanted: str, holds: dict[str, int], last: dict[int, int], now: int, consumed: Iterable[int] = ()) -> str:
    """``wanted``, or the first variant of it whose value is no longer needed after statement ``now``."""
    name, n = wanted, 1
    while True:
        held = holds.get(name)
        if held is None or last.get(held, -1) <= now:
            return name
        name = f"{wanted}_{n}"
        n += 1


def _results(frame: CallFrame) -> list[Tensor]:
    result = frame.result
    if isinstance(result, Instance) and "last_hidden_state" in result.attrs:
        result = result.attrs["last_hidden_state"]
    if isinstance(result, tuple):
        result = result[0] if result else None
    return [result] if isinstance(result, Tensor) else []


_LINES: dict[int, tuple[Any, dict[int, ast.stmt]]] = {}


def _statement(func: Any, line: int) -> ast.stmt | None:
    """The innermost simple statement, or the header of a compound one, on a line of a function."""
    if id(func) not in _LINES:
        table: dict[int, ast.stmt] = {}
        for node in ast.walk(func):  # outer statements come first, inner ones overwrite them
            if isinstance(node, ast.stmt) and node is not func:
                table.update(dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), node))
        _LINES[id(func)] = (func, table)
    return _LINES[id(func)][1].get(line)


def _elements(t: Tensor) -> int:
    n = 1
    for s in t.shape:
        n *= s.value
    return n


def _class(frame: CallFrame) -> str:
    return frame.module.class_name if frame.module is not None else "a function"


def _place(frame: CallFrame) -> Any:
    return Place(frame.span.file, frame.span.line, frame.span.col + 1) if frame.span else None
