"""Holds the symbol table against the source of an engine: read and parsed, never imported.

``check_source`` gives one sentence per entry that the source does not satisfy. A name is
followed through re-exports (``from .x import y``, ``import *``, a module's lazy
``TYPE_CHECKING`` imports); a class's constructor through its bases and, for a dataclass,
its fields. ``**kwargs`` accepts nothing here: an argument that the engine does not name is
one that it may swallow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from fusec.target.symbols import SYMBOLS, Call, Symbol

Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Problem:
    """An entry of the table that a source does not satisfy, as a sentence."""

    symbol: str
    message: str


def check_source(package: Path, symbols: Iterable[Symbol] = tuple(SYMBOLS.values())) -> list[Problem]:
    """What is wrong with each symbol in the source tree of the package ``vllm`` at ``package`` (the folder itself)."""
    source = _Source(package)
    return [Problem(symbol.name, message) for symbol in symbols for message in _check(source, symbol)]


def _check(source: _Source, symbol: Symbol) -> Iterator[str]:
    where = f"{symbol.module}.{symbol.name}"
    if not source.has_module(symbol.module):
        yield f"There is no module {symbol.module}."
        return
    found = source.find(symbol.module, symbol.name)
    if found is None:
        yield f"{symbol.module} has no {symbol.name}."
        return
    module, node = found
    kind = "class" if isinstance(node, ast.ClassDef) else "function" if isinstance(node, ast.FunctionDef) else "object"
    if kind != symbol.kind:
        yield f"{where} is a {kind}, not a {symbol.kind}."
        return
    if symbol.call is not None:
        parameters = _constructor(source, module, node) if isinstance(node, ast.ClassDef) else _parameters(node)
        yield from _check_call(where, parameters, symbol.call)
    for name, call in symbol.members.items():
        member = source.find_member(module, node, name) if isinstance(node, ast.ClassDef) else None
        if member is None:
            yield f"{where} has no {name}."
        elif call is not None and isinstance(member, ast.FunctionDef):
            yield from _check_call(f"{where}.{name}", _parameters(member).without_self(member), call)
        elif call is not None:
            yield f"{where}.{name} is not a method."


@dataclass(frozen=True)
class _Parameters:
    """``by_position`` in order, ``by_keyword`` those that must be named, ``required`` those without a default."""

    by_position: tuple[str, ...]
    by_keyword: tuple[str, ...]
    required: frozenset[str]

    def without_self(self, method: ast.FunctionDef) -> _Parameters:
        if any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list):
            return self
        return _Parameters(self.by_position[1:], self.by_keyword, self.required - {*self.by_position[:1]})


def _check_call(where: str, parameters: _Parameters, call: Call) -> Iterator[str]:
    known = {*parameters.by_position, *parameters.by_keyword}
    for name in call.names:
        if name not in known:
            yield f"{where} has no parameter {name}."
    if all(name in known for name in call.by_position):
        given = parameters.by_position[: len(call.by_position)]
        if given != call.by_position:
            passed = ", ".join(call.by_position)
            yield f"{where} takes ({', '.join(given)}) at the positions where ports pass ({passed})."
    for name in sorted(parameters.required - {*call.by_position, *call.always}):
        yield f"{where} requires the parameter {name}, which ports do not pass."


def _parameters(function: ast.AST) -> _Parameters:
    if not isinstance(function, ast.FunctionDef):
        return _Parameters((), (), frozenset())
    arguments = function.args
    positional = tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args))
    named = tuple(argument.arg for argument in arguments.kwonlyargs)
    required = {*positional[: len(positional) - len(arguments.defaults)]}
    required |= {name for name, default in zip(named, arguments.kw_defaults, strict=True) if default is None}
    return _Parameters(positional, named, frozenset(required))


def _constructor(source: _Source, module: str, cls: ast.ClassDef) -> _Parameters:
    init = source.find_member(module, cls, "__init__")
    if isinstance(init, ast.FunctionDef):
        return _parameters(init).without_self(init)
    fields = [(node.target.id, node.value is None) for node in cls.body if _is_field(node)]  # type: ignore[attr-defined]
    names = tuple(name for name, _ in fields)
    return _Parameters(names, (), frozenset(name for name, required in fields if required))


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and "ClassVar" not in ast.dump(node)


@dataclass
class _Source:
    """The modules of a package as syntax trees, parsed when they are first asked for."""

    package: Path
    trees: dict[str, ast.Module | None] = field(default_factory=dict)

    def has_module(self, module: str) -> bool:
        return self.tree(module) is not None

    def tree(self, module: str) -> ast.Module | None:
        if module not in self.trees:
            path = self.path(module)
            self.trees[module] = None if path is None else ast.parse(path.read_text(encoding="utf-8"))
        return self.trees[module]

    def path(self, module: str) -> Path | None:
        first, *rest = module.split(".")
        if first != "vllm":
            return None
        place = self.package.joinpath(*rest)
        candidates = (place / "__init__.py", place.with_suffix(".py") if rest else place / "__init__.py")
        return next((path for path in candidates if path.is_file()), None)

    def find(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> _Found | None:
        """Where ``name`` of ``module`` is defined, through re-exports: the defining module and the definition."""
        tree = self.tree(module)
        if tree is None or (module, name) in seen:
            return None
        seen |= {(module, name)}
        found: _Found | None = None
        for node in _statements(tree.body):  # the last binding counts, as at run time
            if isinstance(node, ast.ImportFrom):
                found = self._imported(module, node, name, seen) or found
            elif _binds(node, name):
                found = (module, node)
        return found

    def _imported(
        self, module: str, node: ast.ImportFrom, name: str, seen: frozenset[tuple[str, str]]
    ) -> _Found | None:
        origin = self._absolute(module, node)
        for alias in node.names:
            if alias.name == "*":
                return self.find(origin, name, seen)
            if (alias.asname or alias.name) == name:
                return self.find(origin, alias.name, seen)
        return None

    def _absolute(self, module: str, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        path = self.path(module)
        is_package = path is not None and path.name == "__init__.py"
        parts = module.split(".")
        base = parts[: len(parts) - node.level + is_package]
        return ".".join([*base, *([node.module] if node.module else [])])

    def find_member(self, module: str, cls: ast.ClassDef, name: str) -> Definition | None:
        """The definition of an attribute in the class or the first of its bases that has it (depth first)."""
        own = [node for node in _statements(cls.body) if _binds(node, name)]
        if own:
            return own[-1]
        for base in cls.bases:
            origin = base.value if isinstance(base, ast.Subscript) else base
            found = self.find(module, origin.id) if isinstance(origin, ast.Name) else None
            if found is not None and isinstance(found[1], ast.ClassDef):
                member = self.find_member(found[0], found[1], name)
                if member is not None:
                    return member
        return None


_Found = tuple[str, Definition]


def _binds(node: ast.stmt, name: str) -> TypeGuard[Definition]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return node.name == name
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and node.target.id == name
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return False


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class, those inside ``if`` and ``try`` included."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _statements([*node.body, *(s for h in node.handlers for s in h.body), *node.orelse])
        else:
            yield node
