"""One class of the port: its ``__init__`` edited, its ``forward`` written anew.

The class keeps its name, docstring, comments and the statements of ``__init__`` that are
still read; layers that a pattern replaced stand where the source had them. All instances
of the class, in every traced configuration, must give the same text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from fusec.diagnostics import Place, refuse
from fusec.graph.values import ClassValue, Instance
from fusec.match.unit import RANK_ATTRIBUTES, Assign, Unit
from fusec.rewrite.lower import Body, Statement

EXTRA = {
    "cache_config": "cache_config: CacheConfig | None = None",
    "quant_config": "quant_config: QuantizationConfig | None = None",
    "prefix": 'prefix: str = ""',
}
"""What ports pass down besides the source's own parameters, in this order."""


@dataclass(frozen=True)
class ClassSource:
    """A class of the modeling file, as ``ast`` and as libcst, statement by statement."""

    cls: ClassValue
    tree: cst.ClassDef
    init: ast.FunctionDef | None
    init_tree: cst.FunctionDef | None
    forward: ast.FunctionDef | None


@dataclass
class InitPlan:
    """What ``__init__`` of a ported class does."""

    assigns: dict[str, Assign] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    children: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Submodule attribute -> extra parameters that its class takes."""
    needs: set[str] = field(default_factory=set)

    @property
    def extra(self) -> tuple[str, ...]:
        return tuple(n for n in EXTRA if n in self.needs)


def class_source(cls: ClassValue, trees: dict[str, dict[str, cst.ClassDef]], mro: Iterable[object]) -> ClassSource:
    """Pair the two trees of a class: statements of a body correspond one to one, in order.

    ``trees`` holds the libcst classes by file and name; ``__init__`` and ``forward`` may come
    from a base class along ``mro``."""
    own = trees[cls.scope.file][cls.node.name]
    init = init_tree = forward = None
    for base in mro:
        if isinstance(base, ClassValue):
            own_init = _method(base.node, "__init__")
            if init is not None and own_init is not None:
                raise refuse(
                    "FUS401",
                    f"{cls.name}.__init__ builds on that of {base.name}; fusec cannot merge the two yet.",
                    Place(cls.scope.file, cls.node.lineno),
                )
            if init is None and (init := own_init) is not None:
                body = trees[base.scope.file][base.node.name].body.body
                init_tree = next(s for s in body if isinstance(s, cst.FunctionDef) and s.name.value == "__init__")
            forward = forward or _method(base.node, "forward")
    return ClassSource(cls, own, init, init_tree, forward)


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == name), None)


def init_plan(instance: Instance, units: Iterable[Unit], children: dict[str, tuple[str, ...]]) -> InitPlan:
    """Gather what the units of a class ask of its ``__init__``."""
    plan = InitPlan(children=dict(children))
    for unit in units:
        for assign in unit.init:
            known = plan.assigns.get(assign.attr)
            if known is not None and known.text != assign.text:
                raise refuse("FUS502", f"Two patterns set {instance.class_name}.{assign.attr} to different layers.")
            plan.assigns[assign.attr] = assign
            plan.needs.update(assign.needs)
            plan.gone.update(a for a in assign.replaces if a != assign.attr)
        plan.gone.update(a for a in unit.drops if a not in plan.assigns)
    for extra in children.values():
        plan.needs.update(extra)
    if children:
        plan.needs.add("prefix")
    return plan


def render_init(source: ClassSource, plan: InitPlan, reads: set[str], module: cst.Module) -> list[str]:
    """The lines of ``__init__``. ``reads`` are the attributes that the forward reads."""
    assert source.init is not None
    assert source.init_tree is not None
    entries = list(_entries(source, plan, module))
    live = _live(entries, reads | set(plan.children))
    kept = [e for e in entries if e.keep(live)]
    for entry in kept:
        stale = entry.reads & RANK_ATTRIBUTES - set(plan.assigns)
        if (entry.attrs and not set(entry.attrs) & set(plan.assigns) and entry.reads & RANK_ATTRIBUTES) or stale:
            raise refuse(
                "FUS401",
                f"{source.cls.name}.__init__ reads {sorted(entry.reads & RANK_ATTRIBUTES)[0]}, which counts one "
                "rank's share in the port.",
            )
    params = _parameters(source.init, plan)
    body: list[str] = []
    for entry in kept:
        body.extend(entry.text)
    while body and not body[-1].strip():
        body.pop()
    return [f"def __init__({', '.join(params)}) -> None:", *("    " + line if line.strip() else "" for line in body)]


@dataclass
class Entry:
    """A statement of the new ``__init__``: what it binds, what it reads, whether it always stays."""

    text: list[str]
    attrs: tuple[str, ...]
    names: tuple[str, ...]
    reads: set[str]
    read_names: set[str]
    always: bool

    def keep(self, live: set[str]) -> bool:
        return self.always or any(a in live for a in self.attrs) or any(f"local {n}" in live for n in self.names)


def _entries(source: ClassSource, plan: InitPlan, module: cst.Module) -> Iterator[Entry]:
    assert source.init is not None
    assert source.init_tree is not None
    waiting = list(plan.assigns.values())
    defined: set[str] = set()
    passed: set[str] = set()
    own = {a for node in source.init.body for a in _assigned_attrs(node)}

    def place(ready: list[Assign], leading: list[str], trailing: str) -> Iterator[Entry]:
        for i, assign in enumerate(ready):
            waiting.remove(assign)
            defined.add(assign.attr)
            text = f"self.{assign.attr} = {assign.text}{trailing if i == 0 else ''}"
            yield _entry([*(leading if i == 0 else []), text], attrs=(assign.attr,))

    def ready(assign: Assign) -> bool:
        return not assign.last and _reads(assign.text) <= defined

    for node, tree in zip(source.init.body, source.init_tree.body.body, strict=True):
        leading, trailing = _trivia(tree)
        attrs = _assigned_attrs(node)
        if _is_super_init(node):
            yield _entry([*leading, "super().__init__()"], always=True)
            continue
        if any(a in plan.assigns or a in plan.gone for a in attrs):
            hit = [a for a in waiting if any(r in attrs for r in a.replaces) and ready(a)]
            yield from place(hit, leading, trailing)
            # what is read off the layers just made follows them
            passed.update(attrs)
            made = {a.attr for a in hit}
            while hit:
                hit = [
                    a for a in waiting if _reads(a.text) & made and ready(a) and not (set(a.replaces) & own) - passed
                ]
                made |= {a.attr for a in hit}
                yield from place(hit, [], "")
            continue
        child = next((a for a in attrs if a in plan.children), None)
        if child is not None and not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            raise refuse(
                "FUS401",
                f"{source.cls.name}.{child} is made under a condition; fusec cannot pass it what the port needs yet.",
                Place(source.cls.scope.file, node.lineno, node.col_offset + 1),
            )
        if child is not None and isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            text = f"self.{child} = {_with_keywords(node.value, child, plan.children[child])}{trailing}"
            yield _entry([*leading, text], attrs=(child,))
            continue
        defined.update(attrs)
        always = isinstance(node, ast.If) and all(isinstance(s, ast.Raise) for s in node.body) and not node.orelse
        yield _entry(_code(module, tree), attrs=attrs, names=_assigned_names(node), always=always)
    for assign in sorted(waiting, key=lambda a: a.last):
        yield from place([assign], [], "")


def _live(entries: list[Entry], reads: set[str]) -> set[str]:
    live = set(reads)
    while True:
        before = len(live)
        for entry in entries:
            if entry.keep(live):
                live |= entry.reads
                live |= {f"local {n}" for n in entry.read_names}
        if len(live) == before:
            return live


def _entry(text: list[str], attrs: tuple[str, ...] = (), names: tuple[str, ...] = (), always: bool = False) -> Entry:
    code = "\n".join(text)
    tree = ast.parse(code)
    reads = {
        n.attr
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)
        and isinstance(n.value, ast.Name)
        and n.value.id == "self"
        and isinstance(n.ctx, ast.Load)
    }
    read_names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return Entry(text, attrs, names, reads, read_names, always)


def _reads(text: str) -> set[str]:
    return set(re.findall(r"self\.(\w+)", text))


def _assigned_attrs(node: ast.stmt) -> tuple[str, ...]:
    return tuple(
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and isinstance(n.value, ast.Name)
        and n.value.id == "self"
    )


def _assigned_names(node: ast.stmt) -> tuple[str, ...]:
    return tuple(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _is_super_init(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "__init__"
        and isinstance(node.value.func.value, ast.Call)
        and isinstance(node.value.func.value.func, ast.Name)
        and node.value.func.value.func.id == "super"
    )


def _trivia(tree: cst.CSTNode) -> tuple[list[str], str]:
    """Comments above a statement, and the one behind it."""
    lines = getattr(tree, "leading_lines", ())
    leading = [line.comment.value if line.comment else "" for line in lines]
    trailing = ""
    if isinstance(tree, cst.SimpleStatementLine) and tree.trailing_whitespace.comment is not None:
        trailing = "  " + tree.trailing_whitespace.comment.value
    return leading, trailing


def _code(module: cst.Module, tree: cst.CSTNode) -> list[str]:
    return module.code_for_node(tree).rstrip("\n").splitlines()


def _with_keywords(call: ast.Call, attr: str, extra: tuple[str, ...]) -> str:
    text = ast.unparse(call)
    values = [f'prefix=f"{{prefix}}.{attr}"' if name == "prefix" else f"{name}={name}" for name in extra]
    inner = text[:-1]
    return f"{inner}{', ' if not inner.endswith('(') else ''}{', '.join(values)})"


def _parameters(init: ast.FunctionDef, plan: InitPlan) -> list[str]:
    """The source's parameters, then what the port passes down."""
    spec = init.args
    names = [a.arg for a in spec.args]
    out: list[str] = []
    defaults = [None] * (len(spec.args) - len(spec.defaults)) + list(spec.defaults)
    for arg, default in zip(spec.args, defaults, strict=True):
        text = arg.arg + (f": {ast.unparse(arg.annotation)}" if arg.annotation else "")
        if default is not None:
            text += f" = {ast.unparse(default)}" if arg.annotation else f"={ast.unparse(default)}"
        out.append(text)
    for name in plan.extra:
        if name in names:
            raise refuse("FUS401", f"The source's own __init__ has a parameter {name}.")
        out.append(EXTRA[name])
    return out


def render_forward(source: ClassSource, body: Body) -> list[str]:
    """The lines of ``forward``."""
    assert source.forward is not None
    annotations = {a.arg: a.annotation for a in (*source.forward.args.args, *source.forward.args.kwonlyargs)}
    params = ["self"]
    if body.positions:
        params.append("positions: torch.Tensor")
    for name in body.params:
        annotation = annotations.get(name)
        params.append(f"{name}: {ast.unparse(annotation)}" if annotation is not None else f"{name}: torch.Tensor")
    threaded = "residual" in body.returns
    if threaded:
        params.append("residual: torch.Tensor | None")
    result = "tuple[torch.Tensor, torch.Tensor]" if threaded else "torch.Tensor"
    lines = statement_lines(body.statements)
    lines.append(f"return {', '.join(body.returns)}")
    return [f"def forward({', '.join(params)}) -> {result}:", *("    " + line for line in lines)]


def statement_lines(statements: Iterable[Statement]) -> list[str]:
    """Statements with their comments, nested under the branches that they share."""
    lines: list[str] = []
    open_tests: tuple[tuple[str, bool], ...] = ()
    for s in statements:
        common = 0
        while common < min(len(open_tests), len(s.guards)) and open_tests[common] == s.guards[common]:
            common += 1
        indent = "    " * common
        if lines and (s.comments or (common < len(open_tests) and not s.guards[common:])):
            lines.append("")
        for depth, (test, outcome) in enumerate(s.guards[common:], common):
            lines.append("    " * depth + (f"if {test}:" if outcome else f"if not ({test}):"))
        indent = "    " * len(s.guards)
        lines.extend(indent + c for c in s.comments)
        lines.extend(indent + line for line in s.lines)
        open_tests = s.guards
    return lines


def reads_of(body_lines: Iterable[str]) -> set[str]:
    """The attributes of ``self`` that lines of code read."""
    return set().union(*(_reads(line) for line in body_lines))


def class_header(source: ClassSource, bases: str = "nn.Module") -> list[str]:
    """``class X(nn.Module):`` and the source's docstring."""
    lines = [f"class {source.cls.name}({bases}):"]
    docstring = ast.get_docstring(source.cls.node, clean=False)
    if docstring is not None:
        lines.extend("    " + line if i == 0 else line for i, line in enumerate(_docstring_text(source).splitlines()))
        lines.append("")
    return lines


def _docstring_text(source: ClassSource) -> str:
    first = source.tree.body.body[0]
    assert isinstance(first, cst.SimpleStatementLine)
    expr = first.body[0]
    assert isinstance(expr, cst.Expr)
    assert isinstance(expr.value, cst.SimpleString | cst.ConcatenatedString)
    return expr.value.value if isinstance(expr.value, cst.SimpleString) else ""
