"""The values that the interpreter computes with.

Plain Python values stand for themselves. Beside them:

``Sym``         a scalar (or a list, dict... read from the config) that remembers which
                config expression made it and, for a size, which atoms it is made of;
``Tensor``      a handle on one output of a graph node;
``Instance``    an object of an interpreted class (a module, a config, an output class);
``ClassValue``, ``Function``, ``BoundMethod``  interpreted definitions;
``External``    a name outside the interpreted sources, known by its dotted path only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fusec.graph.axes import Size


@dataclass(frozen=True, slots=True)
class Span:
    """A source region: 1-based lines, 0-based columns, in characters."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int

    def contains(self, other: Span) -> bool:
        return (
            self.file == other.file
            and (self.line, self.col) <= (other.line, other.col)
            and (other.end_line, other.end_col) <= (self.end_line, self.end_col)
        )


@dataclass(frozen=True, slots=True)
class Sym:
    """A known value with the config expression that made it (``config.layer_types[layer_idx]``)."""

    value: Any
    expr: str
    size: Size | None = None
    layered: bool = False
    """The expression depends on ``layer_idx``."""
    tokens: bool = False
    """It depends on how many tokens there are, which a served graph must not branch on."""


def plain(value: Any) -> Any:
    """The value without its provenance."""
    return value.value if type(value) is Sym else value


def deep_plain(value: Any) -> Any:
    """The value without provenance at any depth of lists, tuples and dicts."""
    value = plain(value)
    if isinstance(value, list | tuple):
        return type(value)(deep_plain(v) for v in value) if type(value) in (list, tuple) else value
    if type(value) is dict:
        return {deep_plain(k): deep_plain(v) for k, v in value.items()}
    return value


@dataclass(eq=False, slots=True)
class ModuleScope:
    """The global namespace of one interpreted source file."""

    name: str
    file: str
    tree: ast.Module
    is_package: bool
    text: str = ""
    wide: dict[int, bytes] | None = None
    """The lines that are not plain ASCII, by number; found when first needed."""
    names: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<scope {self.name}>"

    def characters(self, line: int, offset: int) -> int:
        """The column in characters of a UTF-8 byte offset, as ``ast`` gives them."""
        if self.wide is None:
            numbered = enumerate(self.text.splitlines(), 1)
            self.wide = {n: text.encode() for n, text in numbered if not text.isascii()}
        return len(self.wide[line][:offset].decode(errors="ignore")) if line in self.wide else offset


@dataclass(eq=False, slots=True)
class ClassValue:
    """An interpreted class. ``body`` is evaluated on first use (``None`` until then)."""

    name: str
    scope: ModuleScope
    node: ast.ClassDef
    bases: tuple[Any, ...]
    namespace: dict[str, Any] | None = None
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    mro_cache: tuple[Any, ...] | None = None
    evaluating: bool = False

    def __repr__(self) -> str:
        return f"<class {self.name}>"


@dataclass(eq=False, slots=True)
class Function:
    """An interpreted function with the decorators that were left on it (dotted names)."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    scope: ModuleScope
    closure: Any
    defaults: list[Any]
    kw_defaults: dict[str, Any]
    owner: ClassValue | None = None
    kind: str = "function"
    """``function``, ``static``, ``class`` or ``property``."""
    decorators: tuple[str, ...] = ()
    setter: Any = None

    def __repr__(self) -> str:
        return f"<function {self.name}>"


@dataclass(eq=False, slots=True)
class BoundMethod:
    func: Any
    self: Any


@dataclass(eq=False, slots=True)
class Instance:
    """An object of an interpreted class, or of an external ``nn`` class.

    For a module: ``children`` are the submodules by attribute in order of assignment, ``path`` its dotted
    path once it hangs in the tree, ``ctor`` the call that made it (bound arguments and source span).
    """

    cls: Any
    attrs: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    ctor: Ctor | None = None
    items: list[Any] | None = None
    """The elements of a ``ModuleList`` or ``Sequential``."""

    @property
    def class_name(self) -> str:
        return self.cls.name if isinstance(self.cls, ClassValue) else self.cls.path.rpartition(".")[2]

    def __repr__(self) -> str:
        return f"<{self.class_name} {self.path}>"


@dataclass(eq=False, slots=True)
class Ctor:
    """How an instance was made: its arguments by parameter name, and the source of the call."""

    arguments: dict[str, Any]
    node: ast.Call | None
    scope: ModuleScope | None
    span: Span | None


@dataclass(frozen=True, slots=True)
class External:
    """A name that is not interpreted: ``torch.nn.Linear``, ``math.sqrt``."""

    path: str

    def __repr__(self) -> str:
        return f"<external {self.path}>"


@dataclass(frozen=True, slots=True)
class Poison:
    """A name whose definition could not be evaluated; using it raises ``error``."""

    error: Exception


@dataclass(frozen=True, slots=True)
class TensorMethod:
    tensor: Tensor
    name: str


@dataclass(eq=False, slots=True)
class Parameter:
    """A parameter or buffer that a module owns directly."""

    owner: Instance | None
    name: str
    tensor: Tensor
    kind: str
    """``parameter`` or ``buffer``."""
    persistent: bool = True


@dataclass(eq=False, slots=True)
class Node:
    """One operation. ``args`` maps parameter names of the op table to tensors and constants."""

    id: int
    op: str
    args: dict[str, Any]
    outputs: tuple[Tensor, ...]
    span: Span | None
    frame: CallFrame
    guards: tuple[Guard, ...] = ()
    call: ast.AST | None = None
    """The expression in the source that made it."""

    def tensors(self) -> Iterator[Tensor]:
        """The tensor inputs, in order, lists flattened."""
        for value in self.args.values():
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, list | tuple):
                yield from (v for v in value if isinstance(v, Tensor))

    def __repr__(self) -> str:
        return f"%{self.id} {self.op}"


@dataclass(eq=False, slots=True)
class Tensor:
    """One output of a node. A handle: an in-place operation moves it to a new node."""

    node: Node
    index: int
    shape: tuple[Size, ...]
    dtype: str | None
    names: list[tuple[str, Any]] = field(default_factory=list)
    """The local names that held it, with the frame each belongs to."""
    storage: list[Any] = field(default_factory=list)
    """Shared by a tensor and its views: the handles that alias one memory."""

    def __repr__(self) -> str:
        return f"%{self.node.id}.{self.index}[{', '.join(map(str, self.shape))}]"


@dataclass(eq=False, slots=True)
class CallFrame:
    """One call of an interpreted function: a module's forward or a helper."""

    id: int
    func: Function | None
    module: Instance | None
    parent: CallFrame | None
    span: Span | None
    arguments: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    call: ast.Call | None = None
    caller_scope: ModuleScope | None = None

    def __repr__(self) -> str:
        return f"<call {self.id} of {self.func!r} on {self.module!r}>"

    @property
    def is_module(self) -> bool:
        return self.module is not None

    def within(self, other: CallFrame) -> bool:
        frame: CallFrame | None = self
        while frame is not None:
            if frame is other:
                return True
            frame = frame.parent
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A branch on a known scalar: where, on what, and which way it went.

    ``body`` spans the statement whose execution it decided.
    """

    span: Span
    expr: str
    value: Any
    layered: bool
    outcome: bool
    frame: CallFrame | None
    node: ast.AST | None = None
    selects: bool = False
    """Not a test: the value itself selects what is computed."""


class NativeFunction:
    """A callable that the host provides to interpreted code."""

    __slots__ = ("fn", "name")

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self.name = name
        self.fn = fn
