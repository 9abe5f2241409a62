"""The port's modeling file: classes in the order of the source, imports, licence header.

Takes the lowerings of one or more traced configurations of the same source and writes the
one text that serves them all, or says where they differ in a way that one class cannot
express.
"""

from __future__ import annotations

import ast
import builtins
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from fusec.diagnostics import Place, refuse
from fusec.graph.interp import Interpreter
from fusec.graph.tracer import children
from fusec.graph.values import CallFrame, ClassValue, External, Instance, ModuleScope, Parameter
from fusec.match.unit import Assign, Layout, Stacked, Unit
from fusec.rewrite.classes import (
    ClassSource,
    class_header,
    class_source,
    init_plan,
    reads_of,
    render_forward,
    render_init,
    statement_lines,
)
from fusec.rewrite.lower import Body, Lowering
from fusec.rewrite.skeleton import decoder_class, head_class
from fusec.rewrite.types import Change
from fusec.rewrite.validate import validate_init
from fusec.target.symbols import SYMBOLS

LOCAL_SYMBOLS = {"get_rotary": ".rotary", "CompleteLoader": ".loading", "check_tensor_parallel": ".parallel"}
"""What comes from the small runtime files of the package itself."""
STANDARD = {
    "Iterable": "from collections.abc import Iterable",
    "Callable": "from collections.abc import Callable",
    "islice": "from itertools import islice",
    "math": "import math",
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
}


@dataclass(frozen=True)
class Written:
    """A finished modeling file with what the plan and the report need from it."""

    text: str
    changes: tuple[Change, ...]
    layouts: tuple[tuple[str, Layout], ...]
    """(module path of the owner, with ``*`` for layer indices; layout)."""
    stacked: tuple[Stacked, ...]


@dataclass
class PortedClass:
    """A class below the decoder, with all bodies that its instances have."""

    cls: ClassValue
    bodies: list[tuple[Lowering, Body]]
    extra: tuple[str, ...] = ()


def write_module(lowerings: list[Lowering], title: str) -> Written:
    """The modeling file for the model that ``lowerings`` trace; ``title`` is its docstring.

    Raises FusecError FUS401, FUS403, FUS502 for what cannot be expressed."""
    return _Writer(lowerings, title).write()


class _Writer:
    def __init__(self, lowerings: list[Lowering], title: str) -> None:
        self.lowerings = lowerings
        self.base = lowerings[0]
        self.graph = self.base.ctx.graph
        self.title = title
        self.scope = self.graph.scope
        self.interpreter = Interpreter(self.base.ctx.library)
        self.trees: dict[str, dict[str, cst.ClassDef]] = {}
        self.modules: dict[str, cst.Module] = {}
        self.symbols: set[str] = set()
        self.changes: list[Change] = []
        self.placed: list[tuple[str, str, Unit]] = []

    def write(self) -> Written:
        decoder, head = self.base.matches.decoder, self.base.matches.head
        assert decoder is not None
        assert head is not None
        positional = set().union(*(lowering.positional for lowering in self.lowerings))
        for lowering in self.lowerings:
            lowering.agree(positional)
            for call in lowering.matches.decoder.calls if lowering.matches.decoder else ():
                lowering.body(call)
        ported = self._ported()
        blocks: dict[str, list[str]] = {}
        order = [ported[k] for k in ported]
        layer_cls = decoder.calls[0].module.cls if decoder.calls[0].module else None
        if any(c.module is not None and c.module.cls is not layer_cls for c in decoder.calls):
            raise refuse(
                "FUS502",
                "The layers are of different classes.",
                None,
                "One list of several layer classes is not supported yet.",
            )
        for name in self._bottom_up(ported):
            blocks[name] = self._class(ported[name], ported)
        stacked = self._stacked(order)
        layer = ported[decoder.calls[0].module.class_name]  # type: ignore[union-attr]
        model_part = decoder_class(self.base, decoder, layer.extra)
        layouts = self._layouts(order, decoder, head)
        head_part = head_class(self.base, head, decoder, stacked, dealt_out(layouts))
        assert decoder.frame.module is not None
        assert head.frame.module is not None
        model_name, root_name = decoder.frame.module.class_name, head.frame.module.class_name
        outer = [self._source(m) for m in (decoder.frame.module, head.frame.module)]
        blocks[model_name] = ["@support_torch_compile", *class_header(outer[0]), *_indent(model_part.lines)]
        blocks[root_name] = [*class_header(outer[1], "nn.Module, SupportsPP"), *_indent(head_part.lines)]
        self.symbols |= set(model_part.symbols) | set(head_part.symbols)
        for other in self.lowerings[1:]:
            d, h = other.matches.decoder, other.matches.head
            assert d is not None
            assert h is not None
            theirs = (
                decoder_class(other, d, layer.extra).lines + head_class(other, h, d, stacked, dealt_out(layouts)).lines
            )
            if theirs != model_part.lines + head_part.lines:
                raise refuse("FUS502", f"{model_name} or {root_name} computes different things for different configs.")
        for part, name in ((model_part, model_name), (head_part, root_name)):
            for unit in part.units:
                self.placed.append((name, part.lines[0], unit))
        self._own_everything(order, decoder, head)
        names = [n.name for n in self.scope.tree.body if isinstance(n, ast.ClassDef) and n.name in blocks]
        foreign = [n for n in blocks if n not in names]
        text = self._assemble([blocks[n] for n in (*foreign, *names)])
        text = format_source(text)
        self._report(text, ported, model_name, root_name)
        return Written(text, tuple(self.changes), layouts, stacked)

    # ------------------------------------------------------------------ classes below the decoder

    def _ported(self) -> dict[str, PortedClass]:
        """The classes whose forwards were lowered, by name."""
        out: dict[str, PortedClass] = {}
        for lowering in self.lowerings:
            for body in lowering.bodies():
                assert body.frame.module is not None
                cls = body.frame.module.cls
                assert isinstance(cls, ClassValue)
                out.setdefault(cls.name, PortedClass(cls, [])).bodies.append((lowering, body))
        return out

    def _bottom_up(self, ported: dict[str, PortedClass]) -> list[str]:
        """Class names, each after the classes of its submodules."""
        done: list[str] = []

        def visit(name: str) -> None:
            if name in done:
                return
            _, body = ported[name].bodies[0]
            for _, child in children(body.frame.module):  # type: ignore[arg-type]
                if child.class_name in ported and child.class_name != name:
                    visit(child.class_name)
            done.append(name)

        for name in ported:
            visit(name)
        return done

    def _class(self, part: PortedClass, ported: dict[str, PortedClass]) -> list[str]:
        lowering, body = max(part.bodies, key=lambda b: len(b[1].statements))
        instance = body.frame.module
        assert instance is not None
        units = [u for u in body.units if u.init or u.drops]
        kids = {
            name: ported[child.class_name].extra for name, child in children(instance) if child.class_name in ported
        }
        plan = init_plan(instance, units, kids)
        part.extra = plan.extra
        self._same_everywhere(part, body, plan.assigns)
        source = class_source(part.cls, self._trees(part.cls.scope), self.interpreter.mro(part.cls))
        forward = render_forward(source, body)
        if "config" in reads_of(forward) and "config" not in instance.attrs:
            plan.assigns["config"] = Assign("config", "config")
        if source.init is None:
            raise refuse(
                "FUS401", f"{part.cls.name} has no __init__.", Place(part.cls.scope.file, part.cls.node.lineno)
            )
        for base in self.interpreter.mro(part.cls):
            if isinstance(base, ClassValue):
                self._trees(base.scope)
        init = render_init(source, plan, reads_of(forward), self.modules[part.cls.scope.file])
        place = Place(part.cls.scope.file, part.cls.node.lineno)
        plain_code = [line for s in body.statements if not s.unit.pattern and not s.unit.call for line in s.lines]
        plain_code += [test for s in body.statements for test, _ in s.guards]
        taken = (reads_of(plain_code) if plain_code else set()) & set(plan.assigns) - {"config"}
        if taken:
            raise refuse(
                "FUS401",
                f"{part.cls.name} reads self.{sorted(taken)[0]}, which means something else in the port.",
                place,
            )
        for low, other in part.bodies:
            assert other.frame.module is not None
            assigns = [a for u in other.units for a in u.init]
            reads = reads_of(forward) - {n for n, _ in children(other.frame.module)} - set(plan.assigns)
            validate_init(init, low, other.frame.module, reads, assigns, place)
        for unit in body.units:
            self.symbols |= set(unit.symbols)
        for statement in body.statements:
            self.placed.append((part.cls.name, statement.lines[0], statement.unit))
            if statement.unit.pattern or statement.unit.what:
                self.changes.append(
                    Change(
                        part.cls.name,
                        "rewritten" if statement.unit.pattern else "kept",
                        statement.unit.what,
                        statement.unit.pattern or None,
                        statement.source_lines,
                        None,
                    )
                )
        carried = set().union(*(lowering.lines_of(u) for u in body.units))
        self.changes.extend(dropped_statements(part.cls.name, source.forward, carried))
        return [*class_header(source), *_indent([*init, "", *forward])]

    def _source(self, module: Instance) -> ClassSource:
        assert isinstance(module.cls, ClassValue)
        return class_source(module.cls, self._trees(module.cls.scope), [module.cls])

    def _same_everywhere(self, part: PortedClass, body: Body, assigns: dict) -> None:  # type: ignore[type-arg]
        """Every instance must run the statements of the chosen one, apart from branches that it does not take."""
        for lowering, other in part.bodies:
            outcomes = {id(d.node): d.outcome for d in lowering.ctx.graph.decisions if d.frame is other.frame}
            expected: list[str] = []
            for s in body.statements:
                guards = self.base_guards(s.unit, part, body)
                if all(outcomes.get(id(g.node), g.outcome) == g.outcome for g in guards):
                    expected.extend(s.lines)
            actual = [line for s in other.statements for line in s.lines]
            place = Place(part.cls.scope.file, part.cls.node.lineno)
            if expected != actual or other.returns != body.returns or other.params != body.params:
                raise refuse(
                    "FUS502",
                    f"Instances of {part.cls.name} compute different things: at {other.frame.module!r} "
                    f"the port would run {actual}, elsewhere {expected}.",
                    place,
                )
            for unit in other.units:
                for a in unit.init:
                    if a.attr in assigns and assigns[a.attr].text != a.text:
                        raise refuse(
                            "FUS502",
                            f"{part.cls.name}.{a.attr} would be built differently in different layers: "
                            f"{a.text} and {assigns[a.attr].text}.",
                            place,
                        )

    def base_guards(self, unit: Unit, part: PortedClass, body: Body):  # type: ignore[no-untyped-def]
        for lowering, b in part.bodies:
            if b is body:
                return lowering.guards_of(unit)
        return ()

    # ------------------------------------------------------------------ weights

    def _stacked(self, order: Iterable[PortedClass]) -> tuple[Stacked, ...]:
        found: dict[tuple[str, str], Stacked] = {}
        for part in order:
            for _, body in part.bodies:
                for unit in body.units:
                    for s in unit.stacked:
                        known = found.setdefault((s.source, s.target), s)
                        if known.shard != s.shard:
                            raise refuse("FUS403", f"{s.source} would load as two different shards of {s.target}.")
        stacked = tuple(found.values())
        for s in stacked:
            for path in self._paths():
                for segment in path.split("."):
                    if segment.startswith(s.source) and segment != s.source:
                        raise refuse(
                            "FUS403", f"The name {segment} begins like the fused {s.source}; loading could mistake it."
                        )
        return stacked

    def _paths(self) -> list[str]:
        return [m.path for m in self.graph.modules() if m.path]

    def _own_everything(self, order: list[PortedClass], decoder, head) -> None:  # type: ignore[no-untyped-def]
        """Promise: no parameter of the source without a home in the port."""
        owned: set[int] = {
            id(decoder.frame.module.attrs[decoder.embed_attr]),
            id(head.frame.module.attrs[head.head_attr]),
        }
        if decoder.norm is not None:
            owned.add(id(decoder.norm.module))
        for part in order:
            for lowering, body in part.bodies:
                if lowering is self.base:
                    for unit in body.units:
                        for layout in unit.layouts:
                            owned.update(id(body.frame.module.attrs[p]) for p in layout.parts)  # type: ignore[union-attr]
        for module in self.graph.modules():
            if id(module) in owned or id(module) in self.base.matches.replaced:
                continue
            if isinstance(module.cls, External):
                if any(k.startswith("#") and v is not None for k, v in module.attrs.items()) or (
                    module.class_name in ("Linear", "Embedding", "LayerNorm", "RMSNorm", "ParameterList")
                ):
                    raise self._unowned(module)
            elif any(
                isinstance(v, Parameter) and (v.kind == "parameter" or v.persistent) for v in module.attrs.values()
            ):
                raise self._unowned(module)

    def _unowned(self, module: Instance) -> Exception:
        span = module.ctor.span if module.ctor else None
        place = Place(span.file, span.line, span.col + 1) if span else None
        return refuse("FUS403", f"{module.path} has parameters, but nothing in the port holds them.", place)

    def _layouts(self, order: list[PortedClass], decoder, head) -> tuple[tuple[str, Layout], ...]:  # type: ignore[no-untyped-def]
        out: dict[tuple[str, str], Layout] = {}
        prefix = decoder.frame.module.path
        out[(prefix, decoder.embed_attr)] = Layout(decoder.embed_attr, "vocab", "vocab", (decoder.embed_attr,))
        for part in order:
            for _, body in part.bodies:
                path = ".".join("*" if s.isdigit() else s for s in body.frame.module.path.split("."))  # type: ignore[union-attr]
                for unit in body.units:
                    for layout in unit.layouts:
                        out.setdefault((path, layout.attr), layout)
        if decoder.norm is not None:
            attr = decoder.norm.module.path.rpartition(".")[2]
            out[(prefix, attr)] = Layout(attr, "replicated", None, (attr,))
        out[("", head.head_attr)] = Layout(head.head_attr, "vocab", "vocab", (head.head_attr,))
        return tuple((path, layout) for (path, _), layout in out.items())

    # ------------------------------------------------------------------ text

    def _trees(self, scope: ModuleScope) -> dict[str, dict[str, cst.ClassDef]]:
        if scope.file not in self.trees:
            module = cst.parse_module(scope.text)
            self.modules[scope.file] = module
            self.trees[scope.file] = {s.name.value: s for s in module.body if isinstance(s, cst.ClassDef)}
        return self.trees

    def _assemble(self, blocks: list[list[str]]) -> str:
        code = "\n\n\n".join("\n".join(b) for b in blocks)
        code = self._without_unknown_annotations(code)
        imports = self._imports(code)
        header = licence_header(self.scope.text)
        parts = ([header] if header else []) + [f'"""{self.title}"""', imports, code]
        return "\n\n".join(parts) + "\n"

    def _free_names(self, code: str) -> set[str]:
        tree = ast.parse(code)
        bound = {n.name for n in ast.walk(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef)}
        bound |= {
            a.arg
            for n in ast.walk(tree)
            if isinstance(n, ast.FunctionDef | ast.Lambda)
            for a in (*n.args.args, *n.args.kwonlyargs)
        }
        bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        return {n for n in used - bound if not hasattr(builtins, n)}

    def _known(self, name: str) -> str | None:
        """The import line of a free name, if the port may import it."""
        if name in LOCAL_SYMBOLS:
            return f"from {LOCAL_SYMBOLS[name]} import {name}"
        if name in SYMBOLS:
            return SYMBOLS[name].import_line
        if name in STANDARD:
            return STANDARD[name]
        value = self.scope.names.get(name)
        if isinstance(value, ClassValue) and ".configuration_" in value.scope.name:
            return f"from transformers import {name}"
        if isinstance(value, External):
            module, _, last = value.path.rpartition(".")
            if module.split(".")[0] in ("torch", "typing", "math", "collections"):
                return f"from {module} import {last}" if last == name else f"from {module} import {last} as {name}"
        return None

    def _without_unknown_annotations(self, code: str) -> str:
        """Annotations may name what the port does not have (caches, keyword types): those go."""
        unknown = {n for n in self._free_names(code) if self._known(n) is None}
        if not unknown:
            return code
        tree = ast.parse(code)
        lines = code.splitlines()
        edits: list[tuple[int, int, int, int, str]] = []
        for func in ast.walk(tree):
            if isinstance(func, ast.FunctionDef):
                for arg in (*func.args.args, *func.args.kwonlyargs):
                    if arg.annotation is not None and _mentions(arg.annotation, unknown):
                        a = arg.annotation
                        edits.append(
                            (
                                a.lineno,
                                arg.col_offset + len(arg.arg),
                                a.end_lineno or a.lineno,
                                a.end_col_offset or 0,
                                "",
                            )
                        )
        for line, start, end_line, end, text in sorted(edits, reverse=True):
            assert line == end_line
            lines[line - 1] = lines[line - 1][:start] + text + lines[line - 1][end:]
        code = "\n".join(lines)
        rest = {n for n in self._free_names(code) if self._known(n) is None}
        if rest:
            raise refuse("FUS401", f"The port would need {sorted(rest)[0]}, which it cannot import.")
        return code

    def _imports(self, code: str) -> str:
        needed = self._free_names(code)
        lines = {line for n in needed if (line := self._known(n)) is not None}
        return "\n".join(sorted(lines))

    # ------------------------------------------------------------------ report

    def _report(self, text: str, ported: dict[str, PortedClass], model_name: str, root_name: str) -> None:
        tree = ast.parse(text)
        classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        lines = text.splitlines()
        matches = self.base.matches
        decoder, head = matches.decoder, matches.head
        assert decoder is not None
        assert head is not None
        done: list[Change] = []
        for change in self.changes:
            first = next(
                (
                    code
                    for c, code, u in self.placed
                    if c == change.cls and u.pattern == (change.pattern or "") and u.what == change.what
                ),
                None,
            )
            done.append(_located(change, classes.get(change.cls), lines, first))
        for name, pattern, what in (
            (model_name, decoder.pattern, "embedding, pipeline stages and compilation as the engine has them"),
            (root_name, head.pattern, "head, logits and weight loading as the engine has them"),
        ):
            node = classes[name]
            source = _definition(self.scope.tree, name)
            done.append(Change(name, "rewritten", what, pattern, source, (node.lineno, node.end_lineno or node.lineno)))
        reasons = self._reasons()
        for gone in self.scope.tree.body:
            if isinstance(gone, ast.ClassDef | ast.FunctionDef) and gone.name not in classes:
                start = min([gone.lineno, *(d.lineno for d in gone.decorator_list)])
                reason, by = reasons.get(gone.name, ("not used when the model serves", None))
                done.append(Change(gone.name, "dropped", reason, by, (start, gone.end_lineno or start), None))
        self.changes = sorted(
            dict.fromkeys(done), key=lambda c: (c.source_lines or (10**6, 0), c.cls, c.pattern or "", c.what)
        )

    def _reasons(self) -> dict[str, tuple[str, str | None]]:
        matches = self.base.matches
        out: dict[str, tuple[str, str | None]] = {}
        for norm in matches.norms.values():
            out[norm.module.class_name] = (f"computed by the engine's {norm.layer}", norm.pattern)
        for module in self.graph.modules():
            if id(module) in matches.replaced:
                out[module.class_name] = (
                    "its table is built by the port's rotary embedding",
                    matches.replaced[id(module)],
                )
        covered: dict[str, str] = {}
        for units in matches.units.values():
            for unit in units:
                for i in unit.covers:
                    frame: CallFrame | None = self.base.ctx.by_id[i].frame
                    while frame is not None and frame is not unit.frame:
                        if frame.func is not None and not frame.is_module:
                            covered[frame.func.name] = unit.pattern
                        frame = frame.parent
        for name, pattern in covered.items():
            out.setdefault(name, ("computed by the engine's layer", pattern))
        for definition in self.graph.definitions.values():
            frame = definition.output.node.frame
            if frame.func is not None:
                out[frame.func.name] = ("the engine's attention computes this (confirmed by value)", "attention/causal")
        return out


def dealt_out(layouts: Iterable[tuple[str, Layout]]) -> dict[str, dict[str, str]]:
    """What the ranks share, by name, as expressions over the config: see runtime/parallel.py."""
    split: dict[str, str] = {}
    repeated: dict[str, str] = {}
    for _, layout in layouts:
        if any("layer_idx" in text for text in layout.extent_text):
            continue
        if layout.sharding == "qkv":
            split["query heads"], repeated["key/value heads"] = layout.extent_text
        elif layout.extent_text:
            split[f"{layout.axis} elements"] = layout.extent_text[0]
    return {"split": split, "repeated": repeated}


DROP_REASONS = (
    ("past_key_value", "the engine keeps the cache"),
    ("attention_interface", "the engine's attention stands in its place"),
    ("mask", "the engine's attention has its own mask"),
    ("dropout", "off when the model serves"),
    ("position_embeddings", "the port's rotary embedding has its own table"),
    ("shape", "layout only: the port works on flat tokens"),
)
"""Why a statement is gone, by a word in it. That it may go is decided before, by the flow of values:
nothing that the port returns depends on it."""


def dropped_statements(cls: str, forward: ast.FunctionDef | None, carried: set[int]) -> list[Change]:
    """The statements of a forward without an operation on the lines that the port carries over, with the reason."""
    out: list[Change] = []
    for node in forward.body if forward is not None else ():
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        renaming = isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        if docstring or renaming or isinstance(node, ast.Return) or carried & set(lines):
            continue
        text = ast.unparse(node)
        reason = next(
            (why for word, why in DROP_REASONS if word in text), "nothing that the port returns depends on it"
        )
        out.append(Change(cls, "dropped", reason, None, (lines[0], lines[-1]), None))
    return out


def _located(change: Change, node: ast.ClassDef | None, lines: list[str], first: str | None) -> Change:
    """Find the statement's line in the formatted text of its class."""
    if node is None or first is None:
        return change
    head = first.split("(")[0].strip()
    for i in range(node.lineno, (node.end_lineno or node.lineno) + 1):
        if lines[i - 1].strip().startswith(head) and "def " not in lines[i - 1]:
            return Change(change.cls, change.kind, change.what, change.pattern, change.source_lines, (i, i))
    return change


def _definition(tree: ast.Module, name: str) -> tuple[int, int] | None:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node.lineno, node.end_lineno or node.lineno
    return None


def _mentions(node: ast.expr, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


def _indent(lines: Iterable[str]) -> list[str]:
    return ["    " + line if line.strip() else "" for line in lines]


def licence_header(text: str) -> str:
    """The comment block at the top of the source, from its copyright line on."""
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            if line.strip() or lines:
                break
            continue
        if lines or "copyright" in line.lower() or "licen" in line.lower() or "spdx" in line.lower():
            lines.append(line.rstrip())
    return "\n".join(lines)


def format_source(text: str) -> str:
    """Sort imports and format with ruff, as a maintainer would. Raises FUS004 where ruff is missing."""
    ruff = Path(sys.executable).with_name("ruff")
    command = str(ruff) if ruff.exists() else shutil.which("ruff")
    if command is None:
        raise refuse("FUS004", "ruff, which formats the port, is not installed.", None, "pip install ruff")
    options = ["--isolated", "--line-length", "120", "--target-version", "py310"]
    for arguments in (
        ["check", "--select", "I", "--fix", "--quiet", *options, "-"],
        ["format", "--quiet", *options, "-"],
    ):
        done = subprocess.run([command, *arguments], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise refuse("FUS005", f"The port could not be formatted: {done.stderr.strip().splitlines()[:1]}.")
        text = done.stdout
    return text


__all__ = ["Written", "format_source", "licence_header", "statement_lines", "write_module"]
