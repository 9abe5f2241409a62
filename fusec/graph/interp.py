"""An interpreter for the Python that modeling and configuration files are written in.

It walks ``ast`` trees and never imports or executes the code: names outside the
interpreted sources become :class:`External`, a dotted path that only a table can give
meaning to. Definitions are evaluated lazily (a class body on first use, a failing
top-level statement only when its name is needed), so that what inference does not use
cannot stop it. Subclasses say what calls on externals, tensors and modules mean.

A branch on a :class:`Sym` is followed the way this config goes and recorded as a
:class:`Guard`; what becomes of guards is decided later, by the plan stage.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from fusec.diagnostics import FusecError, Place, refuse
from fusec.graph.axes import Size, atom, constant
from fusec.graph.values import (
    BoundMethod,
    CallFrame,
    ClassValue,
    External,
    Function,
    Guard,
    Instance,
    ModuleScope,
    NativeFunction,
    Poison,
    Span,
    Sym,
    Tensor,
    TensorMethod,
    deep_plain,
    plain,
)
from fusec.read.library import parse
from fusec.read.types import Library, Source

BINARY: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.MatMult: ("@", operator.matmul),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
COMPARE: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda a, b: a in b),
    ast.NotIn: ("not in", lambda a, b: a not in b),
}
UNARY: dict[type, tuple[str, Callable[[Any], Any]]] = {
    ast.UAdd: ("+", operator.pos),
    ast.USub: ("-", operator.neg),
    ast.Not: ("not ", operator.not_),
    ast.Invert: ("~", operator.invert),
}

# Builtins that only compute on their arguments: safe to run on known values.
PURE_BUILTINS = {
    name: getattr(builtins, name)
    for name in (
        "abs all any bool dict divmod enumerate filter float frozenset int len list map max min pow range repr "
        "reversed round set slice sorted str sum tuple zip bytes complex chr ord hash iter next format"
    ).split()
}
EXCEPTIONS = {n: v for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, BaseException)}
# Pure modules whose functions may run on known values.
PURE_MODULES: dict[str, Any] = {"math": math, "operator": operator}
for _name in ("functools", "itertools", "copy", "re", "json", "string", "warnings", "numbers", "collections"):
    PURE_MODULES[_name] = __import__(_name)
PURE_CALLS = {
    "functools.partial",
    "functools.reduce",
    "itertools.chain",
    "itertools.accumulate",
    "itertools.repeat",
    "itertools.cycle",
    "itertools.islice",
    "itertools.product",
    "copy.deepcopy",
    "copy.copy",
    "re.compile",
    "re.match",
    "re.search",
    "re.sub",
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "collections.namedtuple",
}
# What counts as installed when a file asks: `try: import x` and `is_x_available()`.
AVAILABLE_PACKAGES = frozenset(
    "torch transformers math typing collections dataclasses functools itertools copy re json warnings os numpy "
    "huggingface_hub packaging abc enum contextlib inspect logging operator typing_extensions numbers string".split()
)
LIMIT_LOOP = 100_000
LIMIT_DEPTH = 60


class Return(Exception):
    """Carries a function's result out of nested statements."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Raised(Exception):
    """An exception that the interpreted code raised: an exception object or :class:`Instance`."""

    def __init__(self, value: Any, node: ast.AST | None, span: Span | None) -> None:
        self.value = value
        self.node = node
        self.span = span
        super().__init__(str(value))


class Frame:
    """Local names of one call; ``parent`` is the enclosing function's frame."""

    __slots__ = ("call", "func", "globals_", "names", "nonlocals", "parent", "scope")

    def __init__(
        self,
        scope: ModuleScope,
        names: dict[str, Any],
        parent: Frame | None = None,
        func: Function | None = None,
        call: CallFrame | None = None,
    ) -> None:
        self.scope = scope
        self.names = names
        self.parent = parent
        self.func = func
        self.call = call
        self.globals_: set[str] = set()
        self.nonlocals: set[str] = set()


_MISSING = object()
_ABSENT = object()
"""A default that no attribute has: to ``attribute``, ``_MISSING`` means that there is no default."""


class Interpreter:
    """Evaluates interpreted sources; see the module's docstring.

    ``library`` resolves imports to sources. ``interpreted`` decides which modules are
    interpreted when imported; the others stay external.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.scopes: dict[str, ModuleScope] = {}
        self.guards: list[Guard] = []
        self.calls: list[CallFrame] = []
        self.depth = 0
        self._decided: set[int] = set()
        """Boolean operations that were decided before their last operand."""
        self._expr = {getattr(ast, name[6:]): getattr(self, name) for name in dir(self) if name.startswith("_expr_")}
        self._stmt = {getattr(ast, name[6:]): getattr(self, name) for name in dir(self) if name.startswith("_stmt_")}

    # ------------------------------------------------------------------ places and errors

    def span(self, node: ast.AST, scope: ModuleScope) -> Span:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or 0
        # ast counts UTF-8 bytes, people count characters
        return Span(scope.file, line, scope.characters(line, column), end_line, scope.characters(end_line, end_column))

    def place(self, node: ast.AST | None, scope: ModuleScope | None) -> Place | None:
        if node is None or scope is None or not hasattr(node, "lineno"):
            return None
        span = self.span(node, scope)
        return Place(span.file, span.line, span.col + 1)

    def fail(self, code: str, message: str, node: ast.AST | None, frame: Frame, hint: str | None = None) -> NoReturn:
        raise refuse(code, message, self.place(node, frame.scope), hint)

    # ------------------------------------------------------------------ modules and names

    def load(self, source: Source) -> ModuleScope:
        """The namespace of a source file; its top level is bound lazily, nothing runs yet.

        Raises FusecError FUS105 with the position where the text is not Python."""
        if source.module in self.scopes:
            return self.scopes[source.module]
        tree = parse(source)
        is_package = source.name.endswith("__init__.py")
        scope = ModuleScope(source.module, source.name, tree, is_package, source.text)
        scope.names["__name__"] = source.module
        self.scopes[source.module] = scope
        frame = Frame(scope, scope.names)
        self._top_level(tree.body, frame)
        return scope

    def _top_level(self, body: list[ast.stmt], frame: Frame) -> None:
        """Bind the names of a module. A statement that cannot be evaluated poisons its names."""
        for stmt in body:
            if isinstance(stmt, ast.Expr):
                self.top_level_call(stmt, frame)
                continue
            try:
                self.exec(stmt, frame)
            except (FusecError, Raised) as error:
                self.top_level_failed(stmt)
                for name in _bound_names(stmt):
                    frame.names[name] = Poison(error)

    def top_level_failed(self, stmt: ast.stmt) -> None:
        """Called while the error of a module's statement is handled; re-raise it where it must not pass."""

    def top_level_call(self, stmt: ast.Expr, frame: Frame) -> None:
        """A bare expression of a module: docstrings, and calls for their effect. Nothing follows from it here."""

    def lookup(self, name: str, node: ast.AST, frame: Frame) -> Any:
        scope_frame: Frame | None = frame
        while scope_frame is not None:
            if name in scope_frame.names:
                return self._unpoison(scope_frame.names[name])
            scope_frame = scope_frame.parent
        if name in frame.scope.names:
            return self._unpoison(frame.scope.names[name])
        special = self.builtin(name)
        if special is not _MISSING:
            return special
        for star in frame.scope.names.get("*", ()):
            value = self.attribute(star, name, node, frame, default=_MISSING)
            if value is not _MISSING:
                return value
        self.fail("FUS302", f"The name {name!r} is not defined anywhere that fusec can see.", node, frame)

    def _unpoison(self, value: Any) -> Any:
        if type(value) is Poison:
            raise value.error
        return value

    def builtin(self, name: str) -> Any:
        if name in PURE_BUILTINS or name in EXCEPTIONS or name in _SPECIAL_BUILTINS:
            return External(f"builtins.{name}")
        if name in ("NotImplemented", "Ellipsis"):
            return getattr(builtins, name)
        if name == "__debug__":
            return False
        return _MISSING

    def import_module(self, module: str) -> Any:
        """What an imported module's name stands for: external by default."""
        return External(module)

    def import_from(self, module: str, name: str) -> Any:
        """What ``from module import name`` binds: external, or interpreted if :meth:`interprets` says so."""
        if self.interprets(module, name):
            source = self.library.find(module)
            if source is not None:
                scope = self.load(source)
                if name in scope.names:
                    return scope.names[name]
        return External(f"{module}.{name}")

    def interprets(self, module: str, name: str) -> bool:
        """Whether ``from module import name`` is followed into the module's source."""
        return False

    # ------------------------------------------------------------------ statements

    def exec_block(self, body: list[ast.stmt], frame: Frame) -> None:
        table = self._stmt
        for stmt in body:
            handler = table.get(type(stmt))
            if handler is None:
                self.fail("FUS301", f"fusec does not interpret {_kind(stmt)} here.", stmt, frame)
            handler(stmt, frame)

    def exec(self, stmt: ast.stmt, frame: Frame) -> None:
        self.exec_block([stmt], frame)

    def _stmt_Pass(self, stmt: ast.Pass, frame: Frame) -> None:
        pass

    def _stmt_Expr(self, stmt: ast.Expr, frame: Frame) -> None:
        if not isinstance(stmt.value, ast.Constant):
            self.eval(stmt.value, frame)

    def _stmt_Assign(self, stmt: ast.Assign, frame: Frame) -> None:
        value = self.eval(stmt.value, frame)
        for target in stmt.targets:
            self.assign(target, value, frame)

    def _stmt_AnnAssign(self, stmt: ast.AnnAssign, frame: Frame) -> None:
        if stmt.value is not None:
            self.assign(stmt.target, self.eval(stmt.value, frame), frame)

    def _stmt_AugAssign(self, stmt: ast.AugAssign, frame: Frame) -> None:
        load = _as_load(stmt.target)
        left = self.eval(load, frame)
        right = self.eval(stmt.value, frame)
        self.assign(stmt.target, self.aug(stmt, left, right, frame), frame)

    def aug(self, stmt: ast.AugAssign, left: Any, right: Any, frame: Frame) -> Any:
        if isinstance(left, list) and isinstance(stmt.op, ast.Add):
            left.extend(self.iterate(right, stmt, frame))
            return left
        return self.binary(stmt.op, left, right, stmt, frame)

    def _stmt_Return(self, stmt: ast.Return, frame: Frame) -> None:
        raise Return(None if stmt.value is None else self.eval(stmt.value, frame))

    def _stmt_If(self, stmt: ast.If, frame: Frame) -> None:
        taken = self.truth(self.eval(stmt.test, frame), stmt.test, frame)
        self.exec_block(stmt.body if taken else stmt.orelse, frame)

    def _stmt_For(self, stmt: ast.For, frame: Frame) -> None:
        for item in self.iterate(self.eval(stmt.iter, frame), stmt.iter, frame):
            self.assign(stmt.target, item, frame)
            try:
                self.exec_block(stmt.body, frame)
            except Break:
                return
            except Continue:
                continue
        self.exec_block(stmt.orelse, frame)

    def _stmt_While(self, stmt: ast.While, frame: Frame) -> None:
        for _ in range(LIMIT_LOOP):
            if not self.truth(self.eval(stmt.test, frame), stmt.test, frame):
                self.exec_block(stmt.orelse, frame)
                return
            try:
                self.exec_block(stmt.body, frame)
            except Break:
                return
            except Continue:
                continue
        self.fail("FUS301", "This loop does not end.", stmt, frame)

    def _stmt_Break(self, stmt: ast.Break, frame: Frame) -> None:
        raise Break

    def _stmt_Continue(self, stmt: ast.Continue, frame: Frame) -> None:
        raise Continue

    def _stmt_Raise(self, stmt: ast.Raise, frame: Frame) -> None:
        value = self.eval(stmt.exc, frame) if stmt.exc is not None else frame.names.get("__exception__")
        if isinstance(value, External):
            value = self.call(value, [], {}, stmt, frame)
        raise Raised(value, stmt, self.span(stmt, frame.scope))

    def _stmt_Assert(self, stmt: ast.Assert, frame: Frame) -> None:
        if not self.truth(self.eval(stmt.test, frame), stmt.test, frame):
            message = deep_plain(self.eval(stmt.msg, frame)) if stmt.msg is not None else ""
            raise Raised(AssertionError(message), stmt, self.span(stmt, frame.scope))

    def _stmt_FunctionDef(self, stmt: ast.FunctionDef, frame: Frame) -> None:
        frame.names[stmt.name] = self.make_function(stmt, frame)

    def _stmt_AsyncFunctionDef(self, stmt: ast.AsyncFunctionDef, frame: Frame) -> None:
        frame.names[stmt.name] = Poison(
            refuse("FUS301", "Coroutines are not interpreted.", self.place(stmt, frame.scope))
        )

    def _stmt_ClassDef(self, stmt: ast.ClassDef, frame: Frame) -> None:
        bases = []
        for base in stmt.bases:
            value = self.eval(base, frame)
            bases.append(value)
        frame.names[stmt.name] = self.decorate_class(ClassValue(stmt.name, frame.scope, stmt, tuple(bases)), frame)

    def decorate_class(self, cls: ClassValue, frame: Frame) -> Any:
        return cls

    def _stmt_Import(self, stmt: ast.Import, frame: Frame) -> None:
        for name in stmt.names:
            self._check_available(name.name, stmt, frame)
            if name.asname:
                frame.names[name.asname] = self.import_module(name.name)
            else:
                top = name.name.partition(".")[0]
                frame.names[top] = self.import_module(top)

    def _stmt_ImportFrom(self, stmt: ast.ImportFrom, frame: Frame) -> None:
        module = self.resolve_relative(stmt.module or "", stmt.level, frame.scope)
        self._check_available(module, stmt, frame)
        for name in stmt.names:
            if name.name == "*":
                frame.names.setdefault("*", [])
                frame.names["*"].append(self.import_module(module))
            else:
                frame.names[name.asname or name.name] = self.import_from(module, name.name)

    def _check_available(self, module: str, node: ast.AST, frame: Frame) -> None:
        top = module.partition(".")[0]
        here = frame.scope.name.partition(".")[0]
        if top not in AVAILABLE_PACKAGES and top != here and self.library.find(top) is None:
            raise Raised(ModuleNotFoundError(f"No module named {top!r}"), node, self.span(node, frame.scope))

    @staticmethod
    def resolve_relative(module: str, level: int, scope: ModuleScope) -> str:
        if level == 0:
            return module
        parts = scope.name.split(".")
        drop = level - 1 if scope.is_package else level
        base = parts[: len(parts) - drop] if drop else parts
        return ".".join([*base, module] if module else base)

    def _stmt_Try(self, stmt: ast.Try, frame: Frame) -> None:
        try:
            try:
                self.exec_block(stmt.body, frame)
            except Raised as raised:
                for handler in stmt.handlers:
                    if handler.type is None or self.catches(self.eval(handler.type, frame), raised.value):
                        if handler.name:
                            frame.names[handler.name] = raised.value
                        frame.names["__exception__"] = raised.value
                        self.exec_block(handler.body, frame)
                        break
                else:
                    raise
            else:
                self.exec_block(stmt.orelse, frame)
        finally:
            self.exec_block(stmt.finalbody, frame)

    def catches(self, handler: Any, raised: Any) -> bool:
        if isinstance(handler, tuple):
            return any(self.catches(h, raised) for h in handler)
        if isinstance(handler, External):
            cls = EXCEPTIONS.get(handler.path.removeprefix("builtins."))
            return cls is not None and isinstance(raised, cls)
        if isinstance(handler, ClassValue) and isinstance(raised, Instance):
            return handler in self.mro(raised.cls)
        return False

    def _stmt_With(self, stmt: ast.With, frame: Frame) -> None:
        for item in stmt.items:
            value = self.enter_context(self.eval(item.context_expr, frame), item.context_expr, frame)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, frame)
        self.exec_block(stmt.body, frame)

    def enter_context(self, manager: Any, node: ast.AST, frame: Frame) -> Any:
        self.fail("FUS301", "fusec does not know this context manager.", node, frame)

    def _stmt_Delete(self, stmt: ast.Delete, frame: Frame) -> None:
        for target in stmt.targets:
            if isinstance(target, ast.Name):
                frame.names.pop(target.id, None)
            elif isinstance(target, ast.Attribute):
                obj = self.eval(target.value, frame)
                if isinstance(obj, Instance):
                    obj.attrs.pop(target.attr, None)
            elif isinstance(target, ast.Subscript):
                obj = plain(self.eval(target.value, frame))
                del obj[deep_plain(self.eval(target.slice, frame))]

    def _stmt_Global(self, stmt: ast.Global, frame: Frame) -> None:
        frame.globals_.update(stmt.names)

    def _stmt_Nonlocal(self, stmt: ast.Nonlocal, frame: Frame) -> None:
        frame.nonlocals.update(stmt.names)

    # ------------------------------------------------------------------ assignment

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        kind = type(target)
        if kind is ast.Name:
            self.bind(target.id, value, frame)  # type: ignore[attr-defined]
        elif kind is ast.Attribute:
            self.set_attribute(self.eval(target.value, frame), target.attr, value, target, frame)  # type: ignore[attr-defined]
        elif kind is ast.Subscript:
            self.set_item(
                self.eval(target.value, frame),  # type: ignore[attr-defined]
                self.eval(target.slice, frame),  # type: ignore[attr-defined]
                value,
                target,
                frame,
            )
        elif kind in (ast.Tuple, ast.List):
            self._unpack(target, value, frame)  # type: ignore[arg-type]
        else:
            self.fail("FUS301", f"fusec does not interpret assignment to {_kind(target)}.", target, frame)

    def bind(self, name: str, value: Any, frame: Frame) -> None:
        if name in frame.nonlocals and frame.parent is not None:
            frame.parent.names[name] = value
        elif name in frame.globals_:
            frame.scope.names[name] = value
        else:
            frame.names[name] = value

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, frame: Frame) -> None:
        items = list(self.iterate(value, target, frame))
        targets = target.elts
        star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        if star is not None:
            after = len(targets) - star - 1
            if len(items) < len(targets) - 1:
                self.fail("FUS301", f"Cannot unpack {len(items)} values into {len(targets)} names.", target, frame)
            middle = items[star : len(items) - after]
            items = [*items[:star], middle, *items[len(items) - after :]]
        if len(items) != len(targets):
            self.fail("FUS301", f"Cannot unpack {len(items)} values into {len(targets)} names.", target, frame)
        for t, item in zip(targets, items, strict=True):
            self.assign(t.value if isinstance(t, ast.Starred) else t, item, frame)

    def set_attribute(self, obj: Any, name: str, value: Any, node: ast.AST, frame: Frame) -> None:
        if isinstance(obj, Instance):
            if isinstance(obj.cls, ClassValue):
                found = self.class_attribute(obj.cls, name)
                if isinstance(found, Function) and found.kind == "property" and found.setter is not None:
                    self.call_function(found.setter, [obj, value], {}, node, frame)
                    return
            obj.attrs[name] = value
        elif isinstance(obj, ClassValue):
            self.namespace(obj)[name] = value
        elif isinstance(obj, External | Function):
            pass  # a flag on a function or library object: nothing that inference reads
        else:
            self.fail("FUS301", f"Cannot set attribute {name!r} here.", node, frame)

    def set_item(self, obj: Any, key: Any, value: Any, node: ast.AST, frame: Frame) -> None:
        target = plain(obj)
        if type(obj) is Sym and (not isinstance(target, dict) or deep_plain(target.get(key)) != deep_plain(value)):
            self.fail("FUS401", f"The source changes {obj.expr}; the port would read it unchanged.", node, frame)
        if isinstance(target, dict | list):
            target[deep_plain(key)] = value
        elif isinstance(target, Instance) and (method := self.method(target, "__setitem__")) is not None:
            self.call(method, [key, value], {}, node, frame)
        else:
            self.fail("FUS301", "Cannot assign to an item of this value.", node, frame)

    # ------------------------------------------------------------------ expressions

    def eval(self, node: ast.expr, frame: Frame) -> Any:
        handler = self._expr.get(type(node))
        if handler is None:
            self.fail("FUS301", f"fusec does not interpret {_kind(node)} here.", node, frame)
        return handler(node, frame)

    def _expr_Constant(self, node: ast.Constant, frame: Frame) -> Any:
        return node.value

    def _expr_Name(self, node: ast.Name, frame: Frame) -> Any:
        names = frame.names
        if node.id in names:
            value = names[node.id]
            if type(value) is Poison:
                raise value.error
            return value
        return self.lookup(node.id, node, frame)

    def _expr_Attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        return self.attribute(self.eval(node.value, frame), node.attr, node, frame)

    def _expr_Tuple(self, node: ast.Tuple, frame: Frame) -> Any:
        return tuple(self._elements(node.elts, frame))

    def _expr_List(self, node: ast.List, frame: Frame) -> Any:
        return self._elements(node.elts, frame)

    def _expr_Set(self, node: ast.Set, frame: Frame) -> Any:
        return {plain(v) for v in self._elements(node.elts, frame)}

    def _elements(self, elts: list[ast.expr], frame: Frame) -> list[Any]:
        out: list[Any] = []
        for e in elts:
            if isinstance(e, ast.Starred):
                out.extend(self.iterate(self.eval(e.value, frame), e, frame))
            else:
                out.append(self.eval(e, frame))
        return out

    def _expr_Dict(self, node: ast.Dict, frame: Frame) -> Any:
        out: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                out.update(self.mapping(self.eval(value, frame), value, frame))
            else:
                known = self.eval(key, frame)
                self.decide(known, key, frame)
                out[deep_plain(known)] = self.eval(value, frame)
        return out

    def mapping(self, value: Any, node: ast.AST, frame: Frame) -> dict[Any, Any]:
        value = plain(value)
        if isinstance(value, dict):
            return value
        self.fail("FUS301", "This value is not a mapping that fusec knows.", node, frame)

    def _expr_NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.eval(node.value, frame)
        self.assign(node.target, value, frame)
        return value

    def _expr_Lambda(self, node: ast.Lambda, frame: Frame) -> Any:
        return self.make_function(node, frame)

    def _expr_IfExp(self, node: ast.IfExp, frame: Frame) -> Any:
        taken = self.truth(self.eval(node.test, frame), node.test, frame)
        return self.eval(node.body if taken else node.orelse, frame)

    def _expr_BoolOp(self, node: ast.BoolOp, frame: Frame) -> Any:
        stop = isinstance(node.op, ast.Or)
        value: Any = None
        self._decided.discard(id(node))
        for i, operand in enumerate(node.values):
            value = self.eval(operand, frame)
            last = i == len(node.values) - 1
            if not last and self.truth(value, operand, frame) is stop:
                self._decided.add(id(node))
                return value
        return value

    def _expr_UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> Any:
        value = self.eval(node.operand, frame)
        if isinstance(node.op, ast.Not):
            if isinstance(value, Sym):
                return Sym(not value.value, f"not {_paren(value.expr)}", None, value.layered, value.tokens)
            return not self.truth(value, node.operand, frame)
        return self.unary(node.op, value, node, frame)

    def unary(self, op: ast.unaryop, value: Any, node: ast.AST, frame: Frame) -> Any:
        text, fn = UNARY[type(op)]
        if isinstance(value, Sym):
            return self.sym(fn(value.value), f"{text}{_paren(value.expr)}", value)
        try:
            return fn(value)
        except TypeError as error:
            raise Raised(error, node, self.span(node, frame.scope)) from None

    def _expr_BinOp(self, node: ast.BinOp, frame: Frame) -> Any:
        return self.binary(node.op, self.eval(node.left, frame), self.eval(node.right, frame), node, frame)

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST, frame: Frame) -> Any:
        text, fn = BINARY[type(op)]
        a, b = plain(left), plain(right)
        if isinstance(a, External | ClassValue | Instance) or isinstance(b, External | ClassValue | Instance):
            if isinstance(op, ast.BitOr):
                return External("typing.Union")  # an annotation
            if isinstance(a, Instance) and (method := self.method(a, f"__{fn.__name__.strip('_')}__")) is not None:
                return self.call(method, [right], {}, node, frame)
            self.fail("FUS302", f"The operator {text} is not known for these values.", node, frame)
        try:
            value = fn(a, b)
        except (TypeError, ArithmeticError, ValueError) as error:
            raise Raised(error, node, self.span(node, frame.scope)) from None
        if isinstance(value, list | tuple):
            if isinstance(op, ast.Mult):  # the number of elements is decided here
                self.decide(left, node, frame)
                self.decide(right, node, frame)
            return value
        if type(left) is Sym or type(right) is Sym:
            return self._sym_binary(op, text, left, right, value)
        return value

    def _sym_binary(self, op: ast.operator, text: str, left: Any, right: Any, value: Any) -> Any:
        expr = f"{_paren(_text(left))} {text} {_paren(_text(right))}"
        layered = (type(left) is Sym and left.layered) or (type(right) is Sym and right.layered)
        size = None
        if type(value) is int and value >= 0:
            a, b = size_of(left), size_of(right)
            if a is not None and b is not None:
                if isinstance(op, ast.Mult):
                    size = a * b
                elif isinstance(op, ast.FloorDiv):
                    size = a.divide(b)
            if size is None:
                size = atom(expr, value)
        return Sym(value, expr, size, layered, _of_tokens(left, right))

    def sym(self, value: Any, expr: str, *sources: Any) -> Any:
        """Wrap a computed value with its expression; sizes become opaque atoms."""
        layered = any(type(s) is Sym and s.layered for s in sources)
        size = atom(expr, value) if type(value) is int and value >= 0 else None
        return Sym(value, expr, size, layered, _of_tokens(*sources))

    def _expr_Compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.eval(node.left, frame)
        result: Any = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right_node, frame)
            result = self.compare(op, left, right, node, frame)
            if len(node.ops) > 1 and not self.truth(result, node, frame):
                return result
            left = right
        return result

    def compare(self, op: ast.cmpop, left: Any, right: Any, node: ast.AST, frame: Frame) -> Any:
        text, fn = COMPARE[type(op)]
        a, b = plain(left), plain(right)
        if not isinstance(op, ast.Is | ast.IsNot):
            a, b = deep_plain(a), deep_plain(b)
        if isinstance(op, ast.In | ast.NotIn):
            b = {plain(v) for v in b} if isinstance(b, set) else b
            if isinstance(b, Instance) and (method := self.method(b, "__contains__")) is not None:
                found = self.truth(self.call(method, [left], {}, node, frame), node, frame)
                return found is isinstance(op, ast.In)
        if isinstance(op, ast.Is | ast.IsNot) and isinstance(a, External) and isinstance(b, External):
            return (a == b) is isinstance(op, ast.Is)
        try:
            value = fn(a, b)
        except TypeError as error:
            raise Raised(error, node, self.span(node, frame.scope)) from None
        by_identity = isinstance(op, ast.Is | ast.IsNot)
        syms = [v for v in (left, right) if type(v) is Sym] if by_identity else list(_syms([left, right]))
        if syms:
            expr = f"{_paren(_text(left))} {text} {_paren(_text(right))}"
            return Sym(value, expr, None, any(s.layered for s in syms), _of_tokens(*syms))
        return value

    def _expr_Subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        return self.item(self.eval(node.value, frame), self.eval(node.slice, frame), node, frame)

    def _expr_Slice(self, node: ast.Slice, frame: Frame) -> Any:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if p is None else self.eval(p, frame) for p in parts))

    def item(self, obj: Any, key: Any, node: ast.AST, frame: Frame) -> Any:
        target = plain(obj)
        if isinstance(target, External | ClassValue):
            return self.external_item(target, key, node, frame)
        if isinstance(target, Instance):
            if target.items is not None:
                index = deep_plain(key)
                index = slice(*map(plain, (key.start, key.stop, key.step))) if isinstance(key, slice) else index
                return target.items[index]
            method = self.method(target, "__getitem__")
            if method is not None:
                return self.call(method, [key], {}, node, frame)
        if isinstance(target, dict | list | tuple | str | range):
            if type(obj) is not Sym:
                for part in (key.start, key.stop, key.step) if isinstance(key, slice) else (key,):
                    self.decide(part, node, frame)
            index = slice(*map(plain, (key.start, key.stop, key.step))) if isinstance(key, slice) else deep_plain(key)
            try:
                value = target[index]
            except (KeyError, IndexError, TypeError) as error:
                raise Raised(error, node, self.span(node, frame.scope)) from None
            if type(obj) is Sym and type(value) is not Sym:
                text = _slice_text(key) if isinstance(key, slice) else _text(key)
                layered = obj.layered or (type(key) is Sym and key.layered)
                size = atom(f"{obj.expr}[{text}]", value) if type(value) is int and value >= 0 else None
                return Sym(value, f"{obj.expr}[{text}]", size, layered)
            return value
        self.fail("FUS302", "This value cannot be subscripted.", node, frame)

    def decide(self, value: Any, node: ast.AST, frame: Frame) -> None:
        """A known value selects what is computed (a loop count, a dict key, a name): a branch without ``if``."""
        if type(value) is not Sym or value.layered:
            return
        if value.tokens:
            self.fail("FUS304", f"What is computed here depends on the number of tokens ({value.expr}).", node, frame)
        if frame.call is not None and hasattr(node, "lineno"):
            expr = f"{_paren(value.expr)} == {deep_plain(value)!r}"
            self.guards.append(
                Guard(self.span(node, frame.scope), expr, value.value, False, True, frame.call, node, True)
            )

    @staticmethod
    def serving(call: CallFrame | None) -> bool:
        """Whether a call belongs to a module's forward (its loops are written out) and not to its construction."""
        while call is not None:
            if call.is_module:
                return True
            call = call.parent
        return False

    def external_item(self, obj: Any, key: Any, node: ast.AST, frame: Frame) -> Any:
        return obj  # a generic alias such as list[int] in an annotation

    def _expr_JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> Any:
        parts: list[str] = []
        texts: list[str] = []
        sources: list[Any] = []
        for value in node.values:
            if isinstance(value, ast.Constant):
                parts.append(str(value.value))
                texts.append(repr(value.value))
            elif isinstance(value, ast.FormattedValue):
                item = self.eval(value.value, frame)
                spec = plain(self.eval(value.format_spec, frame)) if value.format_spec else ""
                shown = deep_plain(item)
                if value.conversion == ord("r"):
                    shown = repr(shown)
                try:
                    parts.append(format(shown, spec))
                except (TypeError, ValueError):
                    parts.append(repr(shown))
                sources.append(item)
                plainly = not spec and value.conversion == -1
                texts.append(f"str({_text(item)})" if plainly else f"format({_text(item)}, {spec!r})")
        text = "".join(parts)
        if any(type(s) is Sym for s in sources):
            layered = any(type(s) is Sym and s.layered for s in sources)
            return Sym(text, f"({' + '.join(texts)})", None, layered, _of_tokens(*sources))
        return text

    def _expr_ListComp(self, node: ast.ListComp, frame: Frame) -> Any:
        return list(self._comprehend(node.generators, lambda f: self.eval(node.elt, f), frame))

    def _expr_SetComp(self, node: ast.SetComp, frame: Frame) -> Any:
        return {plain(v) for v in self._comprehend(node.generators, lambda f: self.eval(node.elt, f), frame)}

    def _expr_GeneratorExp(self, node: ast.GeneratorExp, frame: Frame) -> Any:
        return list(self._comprehend(node.generators, lambda f: self.eval(node.elt, f), frame))

    def _expr_DictComp(self, node: ast.DictComp, frame: Frame) -> Any:
        pairs = self._comprehend(
            node.generators, lambda f: (deep_plain(self.eval(node.key, f)), self.eval(node.value, f)), frame
        )
        return dict(pairs)

    def _comprehend(
        self, generators: list[ast.comprehension], element: Callable[[Frame], Any], frame: Frame
    ) -> Iterator[Any]:
        inner = Frame(frame.scope, {}, frame, frame.func, frame.call)
        yield from self._comprehend_from(generators, element, inner)

    def _comprehend_from(
        self, generators: list[ast.comprehension], element: Callable[[Frame], Any], frame: Frame
    ) -> Iterator[Any]:
        if not generators:
            yield element(frame)
            return
        head, *rest = generators
        for item in self.iterate(self.eval(head.iter, frame), head.iter, frame):
            self.assign(head.target, item, frame)
            if all(self.truth(self.eval(test, frame), test, frame) for test in head.ifs):
                yield from self._comprehend_from(rest, element, frame)

    def _expr_Starred(self, node: ast.Starred, frame: Frame) -> Any:
        self.fail("FUS301", "fusec does not interpret a starred value here.", node, frame)

    # ------------------------------------------------------------------ calls

    def _expr_Call(self, node: ast.Call, frame: Frame) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return self._super(node, frame)
        func = self.eval(node.func, frame)
        args: list[Any] = []
        for a in node.args:
            if isinstance(a, ast.Starred):
                args.extend(self.iterate(self.eval(a.value, frame), a, frame))
            else:
                args.append(self.eval(a, frame))
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                kwargs.update(self.mapping(self.eval(k.value, frame), k.value, frame))
            else:
                kwargs[k.arg] = self.eval(k.value, frame)
        return self.call(func, args, kwargs, node, frame)

    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        kind = type(func)
        if kind is Function:
            return self.call_function(func, args, kwargs, node, frame)
        if kind is BoundMethod:
            return self.call(func.func, [func.self, *args], kwargs, node, frame)
        if kind is External:
            return self.call_external(func.path, args, kwargs, node, frame)
        if kind is NativeFunction:
            return func.fn(*args, **kwargs)
        if kind is ClassValue:
            return self.instantiate(func, args, kwargs, node, frame)
        if kind is Instance:
            return self.call_instance(func, args, kwargs, node, frame)
        if kind is Sym:
            return self.call(func.value, args, kwargs, node, frame)
        if callable(func) and not isinstance(func, type):  # functools.partial and bound methods of plain values
            return self._call_native(func, args, kwargs, node, frame)
        self.fail("FUS302", "fusec does not know what this call does.", node, frame)

    def _call_native(self, func: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        inner = getattr(func, "func", None)
        if inner is not None and hasattr(func, "keywords"):  # functools.partial over an interpreted callable
            return self.call(inner, [*func.args, *args], {**func.keywords, **kwargs}, node, frame)
        try:
            return func(*args, **kwargs)
        except Exception as error:
            raise Raised(error, node, self.span(node, frame.scope)) from None

    def call_function(
        self, func: Function, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame | None
    ) -> Any:
        names = self.bind_arguments(func, args, kwargs, node, frame)
        inner = Frame(func.scope, names, func.closure, func)
        inner.call = frame.call if frame is not None else None
        return self.run_function(func, inner, node, frame)

    def run_function(self, func: Function, inner: Frame, node: ast.AST, frame: Frame | None) -> Any:
        self.depth += 1
        if self.depth > LIMIT_DEPTH:
            self.depth = 0
            raise refuse("FUS301", f"The calls of {func.name} nest too deeply.", self.place(node, func.scope))
        try:
            if isinstance(func.node, ast.Lambda):
                return self.eval(func.node.body, inner)
            if _is_generator(func.node):
                raise refuse("FUS301", "Generator functions are not interpreted.", self.place(func.node, func.scope))
            try:
                self.exec_block(func.node.body, inner)
            except Return as result:
                return result.value
            return None
        finally:
            self.depth -= 1

    def bind_arguments(
        self, func: Function, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame | None
    ) -> dict[str, Any]:
        """Python's rules for arguments; raises FusecError where the call does not fit."""
        spec = func.node.args
        positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        names: dict[str, Any] = dict(zip(positional, args, strict=False))
        extra = list(args[len(positional) :])
        if spec.vararg is not None:
            names[spec.vararg.arg] = tuple(extra)
        elif extra:
            raise refuse(
                "FUS301",
                f"{func.name} takes {len(positional)} positional arguments but {len(args)} were given.",
                self.place(node, frame.scope if frame else func.scope),
            )
        allowed = set(positional) | {a.arg for a in spec.kwonlyargs}
        surplus: dict[str, Any] = {}
        for key, value in kwargs.items():
            if key in allowed:
                names[key] = value
            else:
                surplus[key] = value
        if spec.kwarg is not None:
            names[spec.kwarg.arg] = surplus
        elif surplus:
            raise refuse(
                "FUS301",
                f"{func.name} does not take the keyword {next(iter(surplus))!r}.",
                self.place(node, frame.scope if frame else func.scope),
            )
        for name, default in zip(positional[len(positional) - len(func.defaults) :], func.defaults, strict=True):
            names.setdefault(name, default)
        for name, default in func.kw_defaults.items():
            names.setdefault(name, default)
        missing = [n for n in (*positional, *(a.arg for a in spec.kwonlyargs)) if n not in names]
        if missing:
            raise refuse(
                "FUS301",
                f"The call of {func.name} lacks the argument {missing[0]!r}.",
                self.place(node, frame.scope if frame else func.scope),
            )
        return names

    def make_function(self, node: ast.FunctionDef | ast.Lambda, frame: Frame, owner: ClassValue | None = None) -> Any:
        spec = node.args
        func = Function(
            getattr(node, "name", "<lambda>"),
            node,
            frame.scope,
            None if frame.names is frame.scope.names else frame,
            [self.eval(d, frame) for d in spec.defaults],
            {
                a.arg: self.eval(d, frame)
                for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
                if d is not None
            },
            owner,
        )
        result: Any = func
        for decorator in reversed(getattr(node, "decorator_list", [])):
            result = self.decorate(result, decorator, frame)
        return result

    def decorate(self, func: Any, decorator: ast.expr, frame: Frame) -> Any:
        """Apply one decorator. Built-in kinds are known; others are kept by name on the function."""
        if (
            isinstance(decorator, ast.Attribute)
            and decorator.attr == "setter"
            and isinstance(decorator.value, ast.Name)
        ):
            prop = frame.names.get(decorator.value.id)
            if isinstance(prop, Function):
                prop.setter = func
                return prop
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        value = self.eval(target, frame)
        # a decorator of the file itself is no library's, whatever it is called
        path = value.path if isinstance(value, External) else f"{frame.scope.name}:{ast.unparse(target)}"
        if not isinstance(func, Function):
            return func
        match path:
            case "builtins.staticmethod":
                func.kind = "static"
            case "builtins.classmethod":
                func.kind = "class"
            case "builtins.property" | "functools.cached_property":
                func.kind = "property"
            case _:
                func.decorators = (path, *func.decorators)
        return func

    def call_external(self, path: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        """A call of an external name: builtins and pure functions run on known values."""
        module, _, name = path.rpartition(".")
        if module == "builtins":
            return self._call_builtin(name, args, kwargs, node, frame)
        if path in PURE_CALLS or module == "math":
            return self._pure(getattr(PURE_MODULES[module.partition(".")[0]], name), path, args, kwargs, node, frame)
        return self.unknown_call(path, args, kwargs, node, frame)

    def unknown_call(self, path: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        self.fail("FUS302", f"fusec does not know what {path} does.", node, frame)

    def _call_builtin(self, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        match name:
            case "isinstance":
                return self.is_instance(args[0], args[1], node, frame)
            case "issubclass":
                return args[1] in self.mro(args[0]) if isinstance(args[0], ClassValue) else False
            case "hasattr":
                return self.has_attribute(args[0], plain(args[1]), node, frame)
            case "getattr":
                default = args[2] if len(args) > 2 else _MISSING
                self.decide(args[1], node, frame)
                return self.attribute(args[0], plain(args[1]), node, frame, default=default, dynamic=True)
            case "setattr":
                return self.set_attribute(args[0], plain(args[1]), args[2], node, frame)
            case "delattr":
                if isinstance(args[0], Instance):
                    args[0].attrs.pop(plain(args[1]), None)
                return None
            case "callable":
                return isinstance(plain(args[0]), Function | BoundMethod | ClassValue | External | NativeFunction)
            case "type":
                value = plain(args[0])
                return value.cls if isinstance(value, Instance) else External(f"builtins.{type(value).__name__}")
            case "super":
                return _Super(args[0], args[1])
            case "print" | "vars" | "id":
                return None
            case "object":
                return object()
        if name in EXCEPTIONS:
            return EXCEPTIONS[name](*(deep_plain(a) for a in args))
        if name == "dict":
            args = [plain(a) for a in args]
        if name in ("list", "tuple", "enumerate", "zip", "reversed", "iter"):
            args = [a if isinstance(plain(a), int) else list(self.iterate(a, node, frame)) for a in args]
        elif name in ("len", "sum", "all", "any", "next"):
            args = [a.items if isinstance(a, Instance) and a.items is not None else a for a in args]
        if name in ("map", "filter"):
            items = list(self.iterate(args[1], node, frame))
            results = [self.call(args[0], [i], {}, node, frame) if args[0] is not None else i for i in items]
            if name == "map":
                return results
            return [i for i, r in zip(items, results, strict=True) if self.truth(r, node, frame)]
        if name in ("sorted", "max", "min") and "key" in kwargs:
            key = kwargs["key"]
            kwargs = {**kwargs, "key": lambda x: deep_plain(self.call(key, [x], {}, node, frame))}
        if name == "range" and any(type(a) is Sym for a in args):
            if _of_tokens(*args):
                self.fail("FUS304", "This loop runs over the tokens.", node, frame)
            if frame.call is not None and self.serving(frame.call):
                for a in args:
                    self.decide(a, node, frame)
            # a loop as long as the config says: its counter is the layer index
            counted = self._pure(range, name, [plain(a) for a in args], {}, node, frame)
            return [Sym(i, "layer_idx", None, True) for i in counted]
        if name == "enumerate" and isinstance(args[0], Instance | list) and _are_modules(args[0]):
            start = plain(args[1]) if len(args) > 1 else plain(kwargs.get("start", 0))
            modules = (args[0].items if isinstance(args[0], Instance) else args[0]) or []
            return [(Sym(i, "layer_idx", None, True), item) for i, item in enumerate(modules, start)]
        if name in ("enumerate", "zip", "reversed", "list", "tuple", "iter", "dict"):
            result = PURE_BUILTINS[name](*args, **kwargs)
            return list(result) if name in ("enumerate", "zip", "reversed", "iter") else result
        return self._pure(PURE_BUILTINS[name], name, args, kwargs, node, frame)

    def _pure(
        self, fn: Callable[..., Any], name: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame
    ) -> Any:
        plain_args = [deep_plain(a) for a in args]
        plain_kwargs = {k: deep_plain(v) for k, v in kwargs.items()}
        try:
            value = fn(*plain_args, **plain_kwargs)
        except RecursionError:
            raise
        except Exception as error:
            raise Raised(error, node, self.span(node, frame.scope)) from None
        syms = [a for a in (*args, *kwargs.values()) if _has_sym(a)]
        if syms and isinstance(value, int | float | str | bool | type(None)):
            shown = ", ".join([*(_text(a) for a in args), *(f"{k}={_text(v)}" for k, v in kwargs.items())])
            flat = list(_syms(syms))
            if name in ("int", "float") and len(args) == 1 and type(value) is type(plain(args[0])):
                return args[0]
            return self.sym(value, f"{name}({shown})", *flat)
        return value

    def is_instance(self, value: Any, classes: Any, node: ast.AST, frame: Frame) -> bool:
        if isinstance(classes, tuple):
            return any(self.is_instance(value, c, node, frame) for c in classes)
        value = plain(value)
        if isinstance(value, Instance):
            return any(
                c is classes or (isinstance(c, External) and isinstance(classes, External) and c == classes)
                for c in self.mro(value.cls)
            )
        if isinstance(classes, External):
            name = classes.path.rpartition(".")[2]
            if isinstance(value, Tensor):
                return name in ("Tensor", "FloatTensor", "LongTensor")
            cls = getattr(builtins, name, None)
            return isinstance(cls, type) and isinstance(value, cls) and not isinstance(value, Tensor)
        return False

    def call_instance(self, obj: Instance, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        method = self.method(obj, "__call__")
        if method is None:
            self.fail("FUS302", f"An object of {obj.class_name} is called, but it has no __call__.", node, frame)
        return self.call(method, args, kwargs, node, frame)

    # ------------------------------------------------------------------ classes and attributes

    def mro(self, cls: Any) -> tuple[Any, ...]:
        """Linearised bases (C3 where it exists, else depth-first); externals are leaves."""
        if not isinstance(cls, ClassValue):
            return (cls,)
        if cls.mro_cache is None:
            cls.mro_cache = (cls, *_merge([list(self.mro(b)) for b in cls.bases] + [list(cls.bases)]))
        return cls.mro_cache

    def namespace(self, cls: ClassValue) -> dict[str, Any]:
        """The class body, evaluated on first use."""
        if cls.namespace is None:
            names: dict[str, Any] = {}
            cls.namespace = names
            frame = Frame(cls.scope, names, Frame(cls.scope, cls.scope.names))
            for stmt in cls.node.body:
                try:
                    if isinstance(stmt, ast.FunctionDef):
                        names[stmt.name] = self.make_function(stmt, frame, cls)
                        if isinstance(names[stmt.name], Function):
                            names[stmt.name].closure = None
                    elif isinstance(stmt, ast.AnnAssign) and isinstance(stmt.target, ast.Name):
                        cls.annotations[stmt.target.id] = stmt.annotation
                        if stmt.value is not None:
                            names[stmt.target.id] = self.eval(stmt.value, frame)
                    elif not isinstance(stmt, ast.Expr):
                        self.exec(stmt, frame)
                except (FusecError, Raised) as error:
                    for name in _bound_names(stmt):
                        names[name] = Poison(error)
        return cls.namespace

    def class_attribute(self, cls: Any, name: str) -> Any:
        """The attribute along the MRO, or ``None``-like ``_MISSING``; externals answer nothing."""
        for c in self.mro(cls):
            if isinstance(c, ClassValue):
                space = self.namespace(c)
                if name in space:
                    return self._unpoison(space[name])
        return _MISSING

    def method(self, obj: Instance, name: str) -> Any:
        found = self.class_attribute(obj.cls, name)
        return BoundMethod(found, obj) if isinstance(found, Function) else None

    def attribute(
        self, obj: Any, name: str, node: ast.AST, frame: Frame, default: Any = _MISSING, dynamic: bool = False
    ) -> Any:
        kind = type(obj)
        if kind is Instance:
            value = self.instance_attribute(obj, name, node, frame)
        elif kind is External:
            value = self.external_attribute(obj, name, node, frame)
        elif kind is ClassValue:
            value = self._class_value_attribute(obj, name)
        elif kind is _Super:
            value = self.super_attribute(obj, name, node, frame)
        elif kind is Tensor:
            value = self.tensor_attribute(obj, name, node, frame)
        elif kind is Sym:
            inner = plain(obj)
            if isinstance(inner, Instance | ClassValue | External | Tensor):
                return self.attribute(inner, name, node, frame, default)
            value = self._value_attribute(obj, name)
        elif kind is Function or kind is BoundMethod:
            value = {"__name__": getattr(obj, "name", "")}.get(name, _MISSING)
        else:
            value = self._value_attribute(obj, name)
        if value is _MISSING:
            if default is not _MISSING:
                return default
            return self.missing_attribute(obj, name, node, frame)
        return value

    def missing_attribute(self, obj: Any, name: str, node: ast.AST, frame: Frame) -> Any:
        shown = obj.class_name if isinstance(obj, Instance) else type(plain(obj)).__name__
        raise Raised(AttributeError(f"{shown!r} object has no attribute {name!r}"), node, self.span(node, frame.scope))

    def has_attribute(self, obj: Any, name: str, node: ast.AST, frame: Frame) -> Any:
        return self.attribute(obj, name, node, frame, default=_ABSENT) is not _ABSENT

    def instance_attribute(self, obj: Instance, name: str, node: ast.AST, frame: Frame) -> Any:
        if name in obj.attrs:
            return obj.attrs[name]
        if name == "__class__":
            return obj.cls
        if name == "__dict__":
            return obj.attrs
        found = self.class_attribute(obj.cls, name)
        if isinstance(found, Function):
            if found.kind == "property":
                return self.call_function(found, [obj], {}, node, frame)
            if found.kind == "static":
                return found
            if found.kind == "class":
                return BoundMethod(found, obj.cls)
            return BoundMethod(found, obj)
        return found

    def _class_value_attribute(self, cls: ClassValue, name: str) -> Any:
        if name == "__name__":
            return cls.name
        found = self.class_attribute(cls, name)
        if isinstance(found, Function) and found.kind == "class":
            return BoundMethod(found, cls)
        return found

    def external_attribute(self, obj: External, name: str, node: ast.AST, frame: Frame) -> Any:
        if obj.path == "math" and name in ("pi", "inf", "e", "nan", "tau"):
            return getattr(math, name)
        if obj.path == "builtins.str" or name == "__name__":
            return External(f"{obj.path}.{name}")
        return External(f"{obj.path}.{name}")

    def tensor_attribute(self, obj: Tensor, name: str, node: ast.AST, frame: Frame) -> Any:
        return TensorMethod(obj, name)

    def _value_attribute(self, obj: Any, name: str) -> Any:
        value = plain(obj)
        if isinstance(value, dict | list | tuple | str | set | frozenset | int | float | slice) or value is None:
            native = getattr(value, name, _MISSING)
            if native is _MISSING or name.startswith("__"):
                return _MISSING
            if not callable(native):
                return native
            return NativeFunction(name, self._native_method(obj, value, name, native))
        native = getattr(value, name, _MISSING)
        if native is not _MISSING and type(value).__module__ in ("re", "collections", "functools", "builtins"):
            return NativeFunction(name, native) if callable(native) else native
        return _MISSING

    def _native_method(self, obj: Any, value: Any, name: str, native: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if _of_tokens(*args):
                raise refuse("FUS304", f"What {name}() gives here depends on the number of tokens.")
            keep = isinstance(value, list | dict) and name in _STORING_METHODS
            if keep and args:
                args = (deep_plain(args[0]), *args[1:]) if isinstance(value, dict) else args
            else:
                args = tuple(deep_plain(a) for a in args)
            try:
                result = native(*args, **kwargs)
            except Exception as error:
                raise Raised(error, None, None) from None
            if name in ("keys", "values", "items"):
                return list(result)
            if type(obj) is Sym and name == "get" and type(result) is not Sym and args:
                size = atom(f"{obj.expr}[{args[0]!r}]", result) if type(result) is int and result >= 0 else None
                shown = ", ".join(repr(a) for a in args)
                return Sym(result, f"{obj.expr}.get({shown})", size, obj.layered)
            if type(obj) is Sym and isinstance(result, str | int | float | bool):
                return Sym(result, f"{obj.expr}.{name}({', '.join(map(repr, args))})", None, obj.layered)
            return result

        return run

    def _super(self, node: ast.Call, frame: Frame) -> Any:
        f: Frame | None = frame
        while f is not None and (f.func is None or f.func.owner is None):
            f = f.parent
        if f is None or f.func is None or isinstance(f.func.node, ast.Lambda):
            self.fail("FUS301", "super() is used outside of a method.", node, frame)
        first = f.func.node.args.args[0].arg
        return _Super(f.func.owner, f.names[first])

    def super_attribute(self, obj: _Super, name: str, node: ast.AST, frame: Frame) -> Any:
        cls = obj.obj.cls if isinstance(obj.obj, Instance) else obj.obj
        order = self.mro(cls)
        after = order[order.index(obj.cls) + 1 :] if obj.cls in order else ()
        for c in after:
            if isinstance(c, ClassValue):
                space = self.namespace(c)
                if name in space:
                    found = self._unpoison(space[name])
                    if isinstance(found, Function):
                        if found.kind == "property":
                            return self.call_function(found, [obj.obj], {}, node, frame)
                        return found if found.kind == "static" else BoundMethod(found, obj.obj)
                    return found
            elif isinstance(c, External):
                found = self.external_base_attribute(c, name, obj.obj)
                if found is not _MISSING:
                    return found
        if name == "__init__" or name == "__post_init__":
            return NativeFunction(name, lambda *a, **k: None)
        return _MISSING

    def external_base_attribute(self, base: External, name: str, obj: Any) -> Any:
        """An attribute that an external base class gives to its subclasses' objects."""
        return _MISSING

    def instantiate(self, cls: ClassValue, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        obj = Instance(cls)
        init = self.class_attribute(cls, "__init__")
        if isinstance(init, Function):
            self.call_function(init, [obj, *args], kwargs, node, frame)
        elif args or kwargs:
            self.init_without_init(obj, args, kwargs, node, frame)
        return obj

    def init_without_init(
        self, obj: Instance, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame
    ) -> None:
        """A class without ``__init__`` that is given arguments: dataclass-like fields by name."""
        fields: list[str] = []
        for c in reversed(self.mro(obj.cls)):
            if isinstance(c, ClassValue):
                self.namespace(c)
                fields.extend(f for f in c.annotations if f not in fields)
        obj.attrs.update(zip(fields, args, strict=False))
        obj.attrs.update(kwargs)

    # ------------------------------------------------------------------ truth and iteration

    def truth(self, value: Any, node: ast.AST, frame: Frame) -> bool:
        """The branch that a value takes; a branch on a :class:`Sym` is recorded."""
        while isinstance(node, ast.BoolOp):  # the operands before the last have been recorded one by one
            if id(node) in self._decided:
                return bool(plain(value)) if not isinstance(value, Tensor) else self.truth(value, node.values[0], frame)
            node = node.values[-1]
        if type(value) is Sym:
            if value.tokens:
                self.fail(
                    "FUS304",
                    f"This branch depends on what only the running engine knows ({value.expr}).",
                    node,
                    frame,
                    "Serving runs one graph for batches of any size, in whatever dtype the engine is told.",
                )
            inner = value.value
            outcome = bool(inner) if not isinstance(inner, Instance | External | ClassValue) else True
            self.guards.append(
                Guard(self.span(node, frame.scope), value.expr, inner, value.layered, outcome, frame.call, node)
            )
            return outcome
        if isinstance(value, Tensor):
            self.fail(
                "FUS303",
                "This branch depends on the values of a tensor.",
                node,
                frame,
                "Serving runs one graph for all inputs: rewrite the branch with torch.where, or remove it.",
            )
        if isinstance(value, External):
            return self.external_truth(value, node, frame)
        if isinstance(value, Instance):
            return bool(value.items) if value.items is not None else True
        if isinstance(value, Function | BoundMethod | ClassValue | NativeFunction | TensorMethod):
            return True
        return bool(value)

    def external_truth(self, value: External, node: ast.AST, frame: Frame) -> bool:
        self.fail("FUS304", f"This branch depends on {value.path}, which fusec does not know.", node, frame)

    def iterate(self, value: Any, node: ast.AST, frame: Frame) -> Iterator[Any]:
        inner = plain(value)
        if isinstance(inner, Instance) and inner.items is not None:
            return iter(list(inner.items))
        if type(value) is Sym and isinstance(inner, list | tuple):
            return iter([self.item(value, i, node, frame) for i in range(len(inner))])
        if isinstance(inner, list | tuple | range | str | set | frozenset):
            return iter(inner)
        if isinstance(inner, dict):
            return iter(list(inner))
        if hasattr(inner, "__next__") or type(inner).__module__ == "itertools":
            return iter(inner)
        if isinstance(inner, Instance) and (method := self.method(inner, "__iter__")) is not None:
            return self.iterate(self.call(method, [], {}, node, frame), node, frame)
        if isinstance(inner, Tensor):
            self.fail("FUS303", "This loop runs over the values of a tensor.", node, frame)
        self.fail("FUS301", "fusec cannot iterate over this value.", node, frame)


class _Super:
    __slots__ = ("cls", "obj")

    def __init__(self, cls: Any, obj: Any) -> None:
        self.cls = cls
        self.obj = obj


_SPECIAL_BUILTINS = frozenset(
    "isinstance issubclass hasattr getattr setattr delattr callable type super print object property staticmethod "
    "classmethod id vars".split()
)
_STORING_METHODS = frozenset("append extend insert setdefault update pop get".split())


def size_of(value: Any) -> Size | None:
    """The size of an int, with atoms where it has provenance."""
    if type(value) is Sym:
        if value.size is not None:
            return value.size
        return constant(value.value) if type(value.value) is int and value.value >= 0 else None
    return constant(value) if type(value) is int and value >= 0 else None


def _of_tokens(*values: Any) -> bool:
    return any(type(v) is Sym and v.tokens for v in values)


def _are_modules(value: Any) -> bool:
    items = (value.items if isinstance(value, Instance) else value) or []
    return bool(items) and all(isinstance(i, Instance) for i in items)


def _text(value: Any) -> str:
    if type(value) is Sym:
        return value.expr
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_text, value)) + ("," if len(value) == 1 else "") + ")"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {_text(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _slice_text(key: slice) -> str:
    parts = ["" if p is None else _text(p) for p in (key.start, key.stop)]
    return ":".join(parts) + (f":{_text(key.step)}" if key.step is not None else "")


def _paren(text: str) -> str:
    return text if text.replace(".", "").replace("_", "").isalnum() or text.endswith((")", "]")) else f"({text})"


def _has_sym(value: Any) -> bool:
    if type(value) is Sym:
        return True
    return isinstance(value, list | tuple) and any(_has_sym(v) for v in value)


def _syms(values: list[Any]) -> Iterator[Sym]:
    for v in values:
        if type(v) is Sym:
            yield v
        elif isinstance(v, list | tuple):
            yield from _syms(list(v))
        elif type(v) is dict:
            yield from _syms(list(v.values()))


def _kind(node: ast.AST) -> str:
    return {
        "Yield": "a generator",
        "YieldFrom": "a generator",
        "Await": "a coroutine",
        "Match": "a match statement",
        "TryStar": "an except* statement",
    }.get(type(node).__name__, f"this construct ({type(node).__name__})")


def _as_load(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    assert isinstance(target, ast.Subscript)
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)


def _bound_names(stmt: ast.stmt) -> list[str]:
    names: list[str] = []
    for node in ast.walk(stmt):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.alias):
            names.append((node.asname or node.name).partition(".")[0])
    return names


_GENERATORS: dict[int, bool] = {}


def _is_generator(node: ast.FunctionDef) -> bool:
    cached = _GENERATORS.get(id(node))
    if cached is None:
        cached = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _own_nodes(node))
        node._fusec_keep = node  # type: ignore[attr-defined]  # keeps id() unique while cached
        _GENERATORS[id(node)] = cached
    return cached


def _own_nodes(node: ast.FunctionDef) -> Iterator[ast.AST]:
    stack: list[ast.AST] = list(node.body)
    while stack:
        item = stack.pop()
        yield item
        if not isinstance(item, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(item))


def _merge(sequences: list[list[Any]]) -> list[Any]:
    """C3 merge; where no consistent order exists, first come first served."""
    out: list[Any] = []
    sequences = [s for s in sequences if s]
    while sequences:
        for seq in sequences:
            head = seq[0]
            if not any(_contains(s[1:], head) for s in sequences):
                break
        else:
            head = sequences[0][0]
        out.append(head)
        sequences = [r for s in sequences if (r := [x for x in s if not _same(x, head)])]
    return out


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, External) and a == b)


def _contains(seq: list[Any], item: Any) -> bool:
    return any(_same(x, item) for x in seq)


__all__ = ["Break", "Continue", "Frame", "Interpreter", "Raised", "Return", "size_of"]
