"""From an architecture class to a typed dataflow graph with provenance.

:func:`trace` builds the module tree by interpreting ``__init__`` and then walks
``forward`` top-down from the architecture's class: call-site arguments decide most
branches, helpers are inlined, loops over layers unroll. Every node keeps the source span
it came from, the call frame it ran in and the branches it stands under.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fusec.configure.types import Config
from fusec.diagnostics import FusecError, Place, refuse
from fusec.graph.axes import BATCH, SEQ, Size, atom, constant
from fusec.graph.externals import (
    ACTIVATION_FUNCTIONS,
    ACTIVATION_MODULES,
    ATTENTION_KEYWORDS,
    CONTEXTS,
    DTYPE_ALIASES,
    DTYPES,
    KEYWORD_ALIASES,
    MASKS,
    MODULE_BASES,
    MODULES,
    PLACEMENT_KEYWORDS,
    RECORDED_DECORATORS,
    TRANSPARENT_DECORATORS,
)
from fusec.graph.interp import _MISSING, Frame, Interpreter, Raised, size_of
from fusec.graph.ops import BY_ALIAS, OPS, Op, ShapeProblem, result_dtype
from fusec.graph.values import (
    CallFrame,
    ClassValue,
    Ctor,
    External,
    Function,
    Guard,
    Instance,
    ModuleScope,
    NativeFunction,
    Node,
    Parameter,
    Span,
    Sym,
    Tensor,
    TensorMethod,
    deep_plain,
    plain,
)
from fusec.read.types import Library, Source

BATCH_VALUE, SEQ_VALUE = 2, 5
"""The token sizes of the trace. Any values do: sizes carry atoms, and a branch on them is refused."""

ROPE_SCALE = 1.25
"""What stands for the magnitude of a rope type in the trace: not 1, so that leaving it out shows."""


@dataclass(frozen=True)
class AttentionDefinition:
    """The file's own eager attention, traced for one call: what an ``attention`` node means."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor
    output: Tensor
    scaling: Any
    nodes: tuple[Node, ...] = ()


@dataclass
class Graph:
    """A traced model: the module tree, the nodes in order, the calls, the branches taken."""

    root: Instance
    scope: ModuleScope
    config: Config
    nodes: list[Node]
    frames: list[CallFrame]
    guards: list[Guard]
    logits: Tensor
    input_ids: Tensor
    positions: Tensor
    definitions: dict[int, AttentionDefinition] = field(default_factory=dict)
    scopes: dict[str, ModuleScope] = field(default_factory=dict)
    decisions: list[Guard] = field(default_factory=list)
    """Every ``if`` statement that was decided by known values, with its outcome."""

    def modules(self) -> Iterator[Instance]:
        """Every module of the tree, parents first."""
        yield from walk(self.root)

    def calls_of(self, module: Instance) -> list[CallFrame]:
        return [f for f in self.frames if f.module is module]


def walk(module: Instance) -> Iterator[Instance]:
    yield module
    for _, child in children(module):
        yield from walk(child)


def children(module: Instance) -> Iterator[tuple[str, Instance]]:
    """Submodules by attribute name, list elements by index."""
    for name, value in module.attrs.items():
        if isinstance(value, Instance) and is_module(value):
            yield name, value
    for i, value in enumerate(module.items or ()):
        if isinstance(value, Instance) and is_module(value):
            yield str(i), value


def is_module(value: Instance) -> bool:
    """Whether the object's class derives from a torch module."""
    cls = value.cls
    if isinstance(cls, External):
        return cls.path.startswith("torch.nn.") or cls.path == "activation"
    return _derives_from_module(cls)


def _derives_from_module(cls: Any) -> bool:
    if isinstance(cls, External):
        return cls.path.rpartition(".")[2] in MODULE_BASES or cls.path.startswith("torch.nn.")
    return isinstance(cls, ClassValue) and any(_derives_from_module(b) for b in cls.bases)


def trace(modeling: Source, architecture: str, config: Config, library: Library, *, cached: bool = True) -> Graph:
    """Trace ``architecture`` of a modeling file for one config, ``cached`` as when it generates with a cache.

    Raises FusecError with the diagnostics of design.md's promise 2: FUS105 (syntax),
    FUS103 (no such class), FUS3xx (what could not be followed, with its place)."""
    tracer = Tracer(library, config)
    tracer.cached = cached
    try:
        return tracer.run(modeling, architecture)
    except Raised as raised:
        raise _as_diagnostic(raised) from None
    except RecursionError:
        raise refuse("FUS301", "The source nests too deeply to be traced.") from None


def _as_diagnostic(raised: Raised) -> FusecError:
    value = raised.value
    text = str(value) if isinstance(value, BaseException) else repr(value)
    kind = type(value).__name__ if isinstance(value, BaseException) else "error"
    place = None
    if raised.span is not None:
        place = Place(raised.span.file, raised.span.line, raised.span.col + 1)
    if isinstance(value, _NoSuchKey):
        return refuse(
            "FUS306",
            f"The configuration has no attribute {value.args[0]!r}, and the source needs it.",
            place,
            "Add the key to config.json, or convert with the configuration class that declares it.",
        )
    return refuse(
        "FUS307", f"The source raises {kind} for this configuration: {text}", place, "Is config.json complete?"
    )


MODEL_DTYPE = External("torch.model")
"""The dtype of weights and activations, which the engine chooses."""


class _NoSuchKey(AttributeError):
    """A config attribute that neither the class nor config.json has."""


class Tracer(Interpreter):
    """The interpreter with tensors, modules and the configuration."""

    def __init__(self, library: Library, config: Config) -> None:
        super().__init__(library)
        self.config_facts = config
        self.nodes: list[Node] = []
        self.frames: list[CallFrame] = []
        self.branches: list[Guard] = []
        self.decisions: list[Guard] = []
        self.current: CallFrame | None = None
        self.stale: dict[int, Span | None] = {}
        self.traced_definitions = 0
        self.node_definitions: dict[int, AttentionDefinition] = {}

    # ------------------------------------------------------------------ entry

    def run(self, modeling: Source, architecture: str) -> Graph:
        scope = self.load(modeling)
        cls = scope.names.get(architecture)
        if not isinstance(cls, ClassValue):
            raise refuse("FUS103", f"{modeling.name} defines no class {architecture}.")
        frame = Frame(scope, {})
        config = self.config_object(self.config_facts, "config")
        root_frame = self._push(None, None, None, None)
        frame.call = root_frame
        root = self.instantiate(cls, [config], {}, cls.node, frame)
        self._name_modules(root)
        tokens = (atom(BATCH, BATCH_VALUE), atom(SEQ, SEQ_VALUE))
        input_ids = self.source("input", {"name": "input_ids"}, tokens, "int64")
        positions = self.source("input", {"name": "positions"}, tokens, "int64")
        forward = self.class_attribute(cls, "forward")
        if not isinstance(forward, Function):
            raise refuse("FUS103", f"{architecture} has no forward.", self.place(cls.node, scope))
        known: dict[str, Any] = {
            "input_ids": input_ids,
            "position_ids": positions,
            "use_cache": False,
            "output_attentions": False,
            "output_hidden_states": False,
            "return_dict": True,
        }
        cache = Instance(External("cache"))
        stored: list[Any] = []

        def update(key: Any, value: Any, layer_idx: Any = None, *a: Any, **k: Any) -> tuple[Any, Any]:
            stored.append(plain(layer_idx))
            return key, value

        cache.attrs["update"] = NativeFunction("update", update)
        length = Sym(0, "the number of cached tokens", tokens=True)
        cache.attrs["get_seq_length"] = NativeFunction("get_seq_length", lambda *a, **k: length)
        if self.cached:
            mask = self.source("input", {"name": "attention_mask"}, tokens, "int64")
            known.update(past_key_values=cache, use_cache=True, attention_mask=mask)
        self.given = (positions, known.get("attention_mask"))
        accepted = {a.arg for a in (*forward.node.args.args, *forward.node.args.kwonlyargs)}
        kwargs = {k: v for k, v in known.items() if k in accepted}
        result = self.call_function(forward, [root], kwargs, forward.node, frame)
        if stored != list(range(len(stored))):
            raise refuse("FUS401", "The layers do not keep their keys and values one after the other, each its own.")
        logits = self._logits(result, forward, scope)
        return Graph(
            root,
            scope,
            self.config_facts,
            self.nodes,
            self.frames,
            self.guards,
            logits,
            input_ids,
            positions,
            self.node_definitions,
            self.scopes,
            self.decisions,
        )

    def _logits(self, result: Any, forward: Function, scope: ModuleScope) -> Tensor:
        value = result.attrs.get("logits") if isinstance(result, Instance) else result
        if isinstance(value, tuple):
            value = value[0]
        if not isinstance(value, Tensor):
            raise refuse("FUS103", "The architecture's forward returns no logits.", self.place(forward.node, scope))
        return value

    def _name_modules(self, root: Instance) -> None:
        stack = [("", root)]
        seen: set[int] = set()
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                raise refuse("FUS403", f"{path} is the same module as {module.path}, which the port cannot express.")
            seen.add(id(module))
            module.path = path
            for name, child in children(module):
                stack.append((f"{path}.{name}" if path else name, child))

    def top_level_failed(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.Assign) and any(isinstance(t, ast.Attribute | ast.Subscript) for t in stmt.targets):
            raise

    def top_level_call(self, stmt: ast.Expr, frame: Frame) -> None:
        if isinstance(stmt.value, ast.Call):
            try:
                func = self.eval(stmt.value.func, frame)
            except (FusecError, Raised):
                return  # nothing that fusec knows, so nothing that it gives a meaning to
            path = func.path if isinstance(func, External) else ""
            last = path.rpartition(".")[2]
            if path.startswith(("torch.", "transformers.")) and not ("logging" in path or last in ("filterwarnings",)):
                self.fail("FUS302", f"This call of {path} may change what the library computes.", stmt, frame)

    # ------------------------------------------------------------------ the config object

    def config_object(self, config: Config, expr: str) -> Instance:
        obj = Instance(External("config"))
        obj.attrs["__config__"] = config
        obj.attrs["__expr__"] = expr
        return obj

    def _config_attribute(self, obj: Instance, name: str) -> Any:
        config: Config = obj.attrs["__config__"]
        expr: str = obj.attrs["__expr__"]
        cached = obj.attrs.get(name, _MISSING)
        if cached is not _MISSING:
            return cached
        if name in ("_attn_implementation", "attn_implementation", "_attn_implementation_internal"):
            return "eager"
        if name in ("use_return_dict", "return_dict"):
            return True
        if name in ("output_attentions", "output_hidden_states"):
            return False
        if name == "get_text_config":
            return NativeFunction(name, lambda *a, **k: obj)
        if name == "to_dict":
            return NativeFunction(name, lambda *a, **k: dict(config.values))
        if name not in config:
            return _MISSING
        key = config.canonical(name)
        value = config[name]
        if isinstance(value, Config):
            made: Any = self.config_object(value, f"{expr}.{key}")
        else:
            size = atom(f"{expr}.{key}", value) if type(value) is int and value >= 0 else None
            made = Sym(value, f"{expr}.{key}", size)
        obj.attrs[name] = made
        return made

    # ------------------------------------------------------------------ attributes

    def instance_attribute(self, obj: Instance, name: str, node: ast.AST, frame: Frame) -> Any:
        if isinstance(obj.cls, External):
            if obj.cls.path == "config":
                return self._config_attribute(obj, name)
            if name in obj.attrs:
                return obj.attrs[name]
            return self._external_object_attribute(obj, name)
        value = super().instance_attribute(obj, name, node, frame)
        if type(value) is Parameter:
            return value.tensor
        if value is _MISSING and _derives_from_module(obj.cls):
            return self._module_attribute(obj, name)
        return value

    def _external_object_attribute(self, obj: Instance, name: str) -> Any:
        path = obj.cls.path
        if path.startswith("torch.nn.") or path == "activation":
            if name in ("weight", "bias") and path.rpartition(".")[2] in (
                "Linear",
                "Embedding",
                "LayerNorm",
                "RMSNorm",
            ):
                return self._leaf_parameter(obj, name)
            if name in ("append", "extend"):
                items = obj.items if obj.items is not None else []
                return NativeFunction(name, getattr(items, name))
            return self._module_attribute(obj, name)
        if path == "output":
            return None
        return _MISSING

    def _module_attribute(self, obj: Instance, name: str) -> Any:
        """What ``torch.nn.Module`` and transformers' model base give to every module."""
        match name:
            case "training":
                return False
            case "dtype":
                return External("torch.model")
            case "device":
                return External("torch.device")
            case "register_buffer":
                return NativeFunction(
                    name, lambda key, tensor=None, persistent=True, **_: self._register(obj, key, tensor, persistent)
                )
            case "register_parameter":
                return NativeFunction(name, lambda key, value=None, **_: obj.attrs.__setitem__(key, value))
            case "add_module" | "register_module":
                return NativeFunction(name, lambda key, value=None, **_: obj.attrs.__setitem__(plain(key), value))
            case "post_init" | "init_weights" | "_init_weights" | "warn_if_padding_and_no_attention_mask":
                return NativeFunction(name, lambda *a, **k: None)
            case "to" | "eval" | "train" | "requires_grad_":
                return NativeFunction(name, lambda *a, **k: obj)
            case "forward" | "__call__":
                return NativeFunction(
                    name, lambda *a, **k: self.call_instance(obj, list(a), k, obj.cls.node, Frame(obj.cls.scope, {}))
                )
        return _MISSING

    def _register(self, obj: Instance, key: Any, tensor: Any, persistent: Any) -> None:
        if isinstance(tensor, Tensor):
            obj.attrs[plain(key)] = Parameter(obj, plain(key), tensor, "buffer", bool(plain(persistent)))
        else:
            obj.attrs[plain(key)] = tensor

    def set_attribute(self, obj: Any, name: str, value: Any, node: ast.AST, frame: Frame) -> None:
        if isinstance(obj, Instance) and type(value) is Parameter:
            value.owner, value.name = obj, name
            if value.tensor.node.op == "parameter":
                value.tensor.node.args["name"] = name
                value.tensor.node.args["owner"] = obj
        if isinstance(obj, Instance) and isinstance(obj.cls, External):
            if obj.cls.path == "config" and not name.startswith("_"):
                held = self._config_attribute(obj, name)
                if held is _MISSING or deep_plain(held) != deep_plain(value):
                    self.fail(
                        "FUS401", f"The source changes config.{name}; the port would read it unchanged.", node, frame
                    )
                return
            if obj.cls.path.startswith("torch.nn.") and name in ("weight", "bias"):
                self.fail("FUS403", "The source shares or replaces a layer's parameter by hand.", node, frame)
        if isinstance(obj, External):
            self.fail("FUS302", f"The source changes what {obj.path}.{name} means.", node, frame)
        if isinstance(obj, Instance) and is_module(obj) and self.serving(frame.call):
            self.fail("FUS301", f"This forward changes the state of its module (self.{name}).", node, frame)
        if name == "forward" and isinstance(obj, Instance) and is_module(obj):
            self.fail("FUS301", "The source replaces the forward of an object.", node, frame)
        super().set_attribute(obj, name, value, node, frame)

    def missing_attribute(self, obj: Any, name: str, node: ast.AST, frame: Frame) -> Any:
        if isinstance(obj, Instance) and isinstance(obj.cls, External) and obj.cls.path == "config":
            raise Raised(_NoSuchKey(name), node, self.span(node, frame.scope))
        return super().missing_attribute(obj, name, node, frame)

    def has_attribute(self, obj: Any, name: str, node: ast.AST, frame: Frame) -> Any:
        found = super().has_attribute(obj, name, node, frame)
        if isinstance(obj, Instance) and isinstance(obj.cls, External) and obj.cls.path == "config":
            return Sym(found, f"hasattr({obj.attrs['__expr__']}, {name!r})")
        return found

    def attribute(
        self, obj: Any, name: str, node: ast.AST, frame: Frame, default: Any = _MISSING, dynamic: bool = False
    ) -> Any:
        value = super().attribute(obj, name, node, frame, default, dynamic)
        if dynamic and default is not _MISSING:
            inner = plain(obj)
            if isinstance(inner, Instance) and isinstance(inner.cls, External) and inner.cls.path == "config":
                if value is not default:
                    # the key may be missing elsewhere: the expression keeps the default
                    if type(value) is Sym and type(value.value) in (float, bool, str):
                        return replace(value, expr=f"getattr({inner.attrs['__expr__']}, {name!r}, {_shown(default)})")
                    return value
                expr = f"getattr({inner.attrs['__expr__']}, {name!r}, {_shown(default)})"
                if default is None or isinstance(default, bool | int | float | str):
                    return Sym(default, expr, size_of(default) if type(default) is int else None)
        return value

    def external_base_attribute(self, base: External, name: str, obj: Any) -> Any:
        if name == "__init__" and isinstance(obj, Instance):
            if base.path.rpartition(".")[2].endswith("PreTrainedModel"):

                def init(config: Any = None, *a: Any, **k: Any) -> None:
                    obj.attrs["config"] = config

                return NativeFunction(name, init)
            if base.path.startswith("torch.nn.") and base.path.rpartition(".")[2] in MODULES:

                def leaf(*a: Any, **k: Any) -> None:
                    made = self._leaf(base.path, list(a), k, None, None)
                    obj.ctor = made.ctor
                    obj.items = made.items

                return NativeFunction(name, leaf)
            return NativeFunction(name, lambda *a, **k: None)
        if name == "forward" and isinstance(obj, Instance) and base.path.rpartition(".")[2] in MODULES:
            return NativeFunction(
                name, lambda *a, **k: self._leaf_forward(base.path.rpartition(".")[2], obj, list(a), k, None, None)
            )
        if isinstance(obj, Instance) and _derives_from_module(base):
            return self._module_attribute(obj, name)
        return _MISSING

    def external_attribute(self, obj: External, name: str, node: ast.AST, frame: Frame) -> Any:
        if obj.path == "torch" and (name in DTYPES or name in DTYPE_ALIASES):
            return External(f"torch.{DTYPE_ALIASES.get(name, name)}")
        if obj.path.startswith("finfo:"):
            return {"min": -3.4e38, "max": 3.4e38, "eps": 1.1920929e-07, "tiny": 1.2e-38}.get(name, _MISSING)
        if name == "get_interface" and obj.path.endswith("ALL_ATTENTION_FUNCTIONS"):
            return NativeFunction(
                name, lambda impl, default: External("attention_interface") if default is None else _Interface(default)
            )
        return super().external_attribute(obj, name, node, frame)

    def external_item(self, obj: Any, key: Any, node: ast.AST, frame: Frame) -> Any:
        if isinstance(obj, External):
            name = obj.path.rpartition(".")[2]
            if name == "ACT2FN":
                return self._activation(key, node, frame)
            if name == "ACT2CLS":
                return NativeFunction(name, lambda *a, **k: self._activation(key, node, frame))
            if name == "ROPE_INIT_FUNCTIONS":
                return NativeFunction(name, lambda *a, **k: self._rope_init(key, a, k, node, frame))
        return super().external_item(obj, key, node, frame)

    def _activation(self, key: Any, node: ast.AST, frame: Frame) -> Instance:
        made = Instance(External("activation"))
        made.attrs["kind"] = key
        made.ctor = Ctor({"kind": key}, None, frame.scope, self.span(node, frame.scope))
        return made

    def _rope_init(
        self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: ast.AST, frame: Frame
    ) -> tuple[Tensor, Sym]:
        """The table of a rope type, for the config itself; other arguments would make another table."""
        given = {**dict(zip(("config", "device", "seq_len", "layer_type"), args, strict=False)), **kwargs}
        given = {k: v for k, v in given.items() if plain(v) is not None and k != "device"}
        named = given.pop("config", None)
        if given or not (isinstance(named, Instance) and named.attrs.get("__config__") is self.config_facts):
            self.fail("FUS404", "This table of a rope type is not made from the config alone.", node, frame)
        config = self.config_facts
        if config.get("head_dim"):
            size = atom(f"config.{config.canonical('head_dim')}", config["head_dim"])
        else:
            hidden, heads = (config.canonical(n) for n in ("hidden_size", "num_attention_heads"))
            size = atom(f"config.{hidden} // config.{heads}", config[hidden] // config[heads])
        half = Size(size.value // 2, size.factor / 2, size.atoms)
        table = self.source("rope_init", {"rope_type": kind}, (half,), "float32", node, frame)
        return table, Sym(ROPE_SCALE, "<attention scaling of the rope type>")

    # ------------------------------------------------------------------ statements with branches

    def _stmt_If(self, stmt: ast.If, frame: Frame) -> None:
        before = len(self.guards)
        taken = self.truth(self.eval(stmt.test, frame), stmt.test, frame)
        fresh = self.guards[before:]
        if not fresh:
            self.exec_block(stmt.body if taken else stmt.orelse, frame)
            return
        self.branches.append(
            Guard(
                self.span(stmt, frame.scope),
                " and ".join(g.expr for g in fresh),
                fresh[-1].value,
                any(g.layered for g in fresh),
                taken,
                frame.call,
                stmt,
            )
        )
        self.decisions.append(self.branches[-1])
        try:
            self.exec_block(stmt.body if taken else stmt.orelse, frame)
        finally:
            self.branches.pop()

    def bind(self, name: str, value: Any, frame: Frame) -> None:
        if type(value) is Tensor:
            value.names.append((name, frame.call))
        super().bind(name, value, frame)

    def enter_context(self, manager: Any, node: ast.AST, frame: Frame) -> Any:
        if isinstance(manager, External) and manager.path.startswith("context:"):
            return None
        return super().enter_context(manager, node, frame)

    def external_truth(self, value: External, node: ast.AST, frame: Frame) -> bool:
        if value.path.startswith("torch.") or value.path.startswith("transformers."):
            return True  # a class, function or dtype
        return super().external_truth(value, node, frame)

    # ------------------------------------------------------------------ calls

    def call(self, func: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        kind = type(func)
        if kind is TensorMethod:
            return self.tensor_method(func.tensor, func.name, args, kwargs, node, frame)
        if kind is _Interface:
            return self._attention(func.default, args, kwargs, node, frame)
        return super().call(func, args, kwargs, node, frame)

    def call_function(
        self, func: Function, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame | None
    ) -> Any:
        for decorator in func.decorators:
            last = decorator.rpartition(".")[2]
            if last not in TRANSPARENT_DECORATORS and last not in RECORDED_DECORATORS:
                raise refuse(
                    "FUS302",
                    f"The decorator {decorator} on {func.name} may change what it computes; fusec does not know it.",
                    self.place(func.node, func.scope),
                )
        names = self.bind_arguments(func, args, kwargs, node, frame)
        first = args[0] if args else None
        module = first if func.name == "forward" and isinstance(first, Instance) and is_module(first) else None
        call = self._push(func, module, node, frame)
        call.arguments = dict(names)
        for name, value in names.items():
            if type(value) is Tensor:
                value.names.append((name, call))
        inner = Frame(func.scope, names, func.closure, func, call)
        previous, self.current = self.current, call
        try:
            call.result = self.run_function(func, inner, node, frame)
        finally:
            self.current = previous
        return call.result

    def _push(
        self, func: Function | None, module: Instance | None, node: ast.AST | None, frame: Frame | None
    ) -> CallFrame:
        span = (
            self.span(node, frame.scope) if node is not None and frame is not None and hasattr(node, "lineno") else None
        )
        call = CallFrame(len(self.frames), func, module, self.current, span)
        call.call = node if isinstance(node, ast.Call) else None
        call.caller_scope = frame.scope if frame is not None else None
        self.frames.append(call)
        if self.current is None:
            self.current = call
        return call

    def call_instance(self, obj: Instance, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        if isinstance(obj.cls, External):
            if obj.cls.path == "activation":
                x = args[0] if args else kwargs["input"]
                return self.emit("act", {"input": x, "kind": obj.attrs["kind"], "module": obj}, node, frame)
            if obj.cls.path.startswith("torch.nn."):
                return self._leaf_forward(obj.cls.path.rpartition(".")[2], obj, args, kwargs, node, frame)
            self.fail("FUS302", f"fusec does not know what calling {obj.cls.path} does.", node, frame)
        if self.method(obj, "__call__") is not None:
            return super().call_instance(obj, args, kwargs, node, frame)
        forward = self.class_attribute(obj.cls, "forward")
        if isinstance(forward, Function):
            return self.call_function(forward, [obj, *args], kwargs, node, frame)
        for base in self.mro(obj.cls):
            if isinstance(base, External) and base.path.startswith("torch.nn."):
                return self._leaf_forward(base.path.rpartition(".")[2], obj, args, kwargs, node, frame)
        return super().call_instance(obj, args, kwargs, node, frame)

    def instantiate(self, cls: ClassValue, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        obj = Instance(cls)
        init = self.class_attribute(cls, "__init__")
        call = node if isinstance(node, ast.Call) else None
        if isinstance(init, Function):
            bound = self.bind_arguments(init, [obj, *args], kwargs, node, frame)
            obj.ctor = Ctor(dict(list(bound.items())[1:]), call, frame.scope, self._span(node, frame))
            self.call_function(init, [obj, *args], kwargs, node, frame)
        else:
            base = next((b for b in self.mro(cls) if isinstance(b, External) and b.path.startswith("torch.nn.")), None)
            if base is not None and base.path.rpartition(".")[2] in MODULES:
                made = self._leaf(base.path, args, kwargs, call, frame)
                obj.ctor, obj.items = made.ctor, made.items
            elif args or kwargs:
                self.init_without_init(obj, args, kwargs, node, frame)
        return obj

    def _span(self, node: ast.AST | None, frame: Frame | None) -> Span | None:
        return (
            self.span(node, frame.scope) if node is not None and frame is not None and hasattr(node, "lineno") else None
        )

    def unknown_call(self, path: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        module, _, name = path.rpartition(".")
        if module == "torch.nn" and name in MODULES:
            return self._leaf(path, args, kwargs, node if isinstance(node, ast.Call) else None, frame)
        if path == "torch.nn.Parameter" or path == "torch.nn.Buffer":
            tensor = args[0] if args else kwargs.get("data")
            return self._parameter(tensor, name.lower(), kwargs.get("persistent", True), node, frame)
        if path in ACTIVATION_FUNCTIONS:
            x = self._only_input(path, args, kwargs, node, frame)
            return self.emit("act", {"input": x, "kind": ACTIVATION_FUNCTIONS[path]}, node, frame)
        if path == "torch.nn.functional.gelu":
            approximate = plain(kwargs.get("approximate", args[1] if len(args) > 1 else "none"))
            kind = "gelu_pytorch_tanh" if approximate == "tanh" else "gelu"
            return self.emit("act", {"input": args[0], "kind": kind}, node, frame)
        if path == "torch.nn.functional.dropout":
            return self._dropout(args, kwargs, node, frame)
        if path in BY_ALIAS:
            return self._torch_call(BY_ALIAS[path], args, kwargs, node, frame)
        if name in MASKS:
            return self._mask(name, kwargs, args)
        if name in ("autocast", "maybe_autocast") and plain(kwargs.get("enabled", True)) is not False:
            self.fail("FUS302", "Automatic casts change how this computation rounds.", node, frame)
        if name in CONTEXTS or path == "contextlib.nullcontext":
            return External(f"context:{name}")
        if name.endswith(("Output", "OutputWithPast", "OutputWithPastAndCrossAttentions")) or "ModelOutput" in name:
            made = Instance(External("output"))
            made.attrs.update(kwargs)
            return made
        if path == "torch.finfo":
            return External(f"finfo:{plain(args[0])}")
        if name == "get_logger" or path.startswith("logger"):
            return External("logger") if name == "get_logger" else None
        if name.startswith("is_") and name.endswith("_available"):
            return name == "is_torch_available"
        if path in ("torch.device", "torch.get_default_dtype"):
            return External(path)
        if path == "torch.is_tensor":
            return isinstance(args[0], Tensor)
        if name in (
            "is_torchdynamo_compiling",
            "is_tracing",
            "is_compiling",
            "is_torchdynamo_exporting",
            "is_exporting",
        ):
            return False
        if path == "torch.is_grad_enabled" or path == "torch.is_autocast_enabled":
            return False
        self.fail("FUS302", f"fusec does not know what {path} does.", node, frame)

    def _only_input(self, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        """The one operand of an elementwise function; whatever else is passed would change what it does."""
        rest = {k: v for k, v in kwargs.items() if k != "input" and not (k == "inplace" and plain(v) is False)}
        if len(args) + ("input" in kwargs) != 1 or rest:
            self.fail(
                "FUS302",
                f"fusec knows {name} only with its input ({', '.join(rest) or 'too many arguments'}).",
                node,
                frame,
            )
        return args[0] if args else kwargs["input"]

    def _dropout(self, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        bound = {**dict(zip(("input", "p", "training"), args, strict=False)), **kwargs}
        if plain(bound.get("training", True)) and plain(bound.get("p", 0.5)) != 0:
            self.fail("FUS401", "This dropout is also on when the model serves.", node, frame)
        return bound["input"]

    def interprets(self, module: str, name: str) -> bool:
        package = self.library_package
        return module.startswith(f"{package}.models.") or module == f"{package}.pytorch_utils"

    library_package = "transformers"
    cached = True
    given: tuple[Any, Any] = (None, None)
    """Positions and padding mask as the architecture's forward gets them."""

    # ------------------------------------------------------------------ leaves of the module tree

    def _leaf(
        self, path: str, args: list[Any], kwargs: dict[str, Any], call: ast.Call | None, frame: Frame | None
    ) -> Instance:
        name = path.rpartition(".")[2]
        made = Instance(External(path))
        bound: dict[str, Any] = {}
        rest = list(args)
        for param in MODULES[name].split():
            if param.startswith("*"):
                bound[param[1:]] = rest
                rest = []
                continue
            key, _, default = param.partition("=")
            if rest:
                bound[key] = rest.pop(0)
            elif key in kwargs:
                bound[key] = kwargs[key]
            elif default:
                bound[key] = ast.literal_eval(default)
            else:
                raise refuse(
                    "FUS301", f"{name} lacks the argument {key!r}.", self.place(call, frame.scope if frame else None)
                )
        unknown = [k for k in kwargs if k not in bound and k not in PLACEMENT_KEYWORDS]
        if rest or unknown:
            raise refuse(
                "FUS302",
                f"{name} is built with {unknown[0] if unknown else 'more arguments'}, which fusec does not know.",
                self.place(call, frame.scope if frame else None),
            )
        if plain(bound.get("inplace", False)) and name != "Dropout":
            raise refuse(
                "FUS301", f"{name} changes its input in place.", self.place(call, frame.scope if frame else None)
            )
        made.ctor = Ctor(bound, call, frame.scope if frame else None, self._span(call, frame))
        if name in ("ModuleList", "Sequential", "ParameterList"):
            modules = bound.get("modules", bound.get("values")) or []
            if name == "Sequential" and len(modules) == 1 and isinstance(modules[0], list):
                modules = modules[0]
            made.items = list(modules)
        elif name == "ModuleDict":
            made.attrs.update(plain(bound["modules"]) or {})
        return made

    def _leaf_parameter(self, obj: Instance, name: str) -> Tensor | None:
        cached = obj.attrs.get(f"#{name}", _MISSING)
        if cached is not _MISSING:
            return cached.tensor if cached is not None else None
        assert obj.ctor is not None
        a = obj.ctor.arguments
        kind = obj.class_name if isinstance(obj.cls, External) else self._leaf_kind(obj)
        shape: tuple[Size, ...] | None = None
        if kind == "Linear":
            shape = (
                (_need(a["out_features"]), _need(a["in_features"])) if name == "weight" else (_need(a["out_features"]),)
            )
            if name == "bias" and not plain(a["bias"]):
                shape = None
        elif kind == "Embedding":
            shape = (_need(a["num_embeddings"]), _need(a["embedding_dim"])) if name == "weight" else None
        else:
            dims = plain(a["normalized_shape"])
            dims = list(dims) if isinstance(dims, list | tuple) else [a["normalized_shape"]]
            shape = tuple(_need(d) for d in dims)
            if not plain(a.get("elementwise_affine", True)) or (name == "bias" and not plain(a.get("bias", False))):
                shape = None
        if shape is None:
            obj.attrs[f"#{name}"] = None
            return None
        tensor = self.source("parameter", {"name": name, "owner": obj}, shape, "model")
        obj.attrs[f"#{name}"] = Parameter(obj, name, tensor, "parameter")
        return tensor

    def _leaf_kind(self, obj: Instance) -> str:
        return next(
            b.path.rpartition(".")[2]
            for b in self.mro(obj.cls)
            if isinstance(b, External) and b.path.startswith("torch.nn.")
        )

    def _leaf_forward(
        self,
        kind: str,
        obj: Instance,
        args: list[Any],
        kwargs: dict[str, Any],
        node: ast.AST | None,
        frame: Frame | None,
    ) -> Any:
        x = args[0] if args else kwargs.get("input", kwargs.get("hidden_states", kwargs.get("x")))
        match kind:
            case "Dropout" | "Identity":
                return x
            case "Linear":
                weight, bias = self._leaf_parameter(obj, "weight"), self._leaf_parameter(obj, "bias")
                return self.emit("linear", {"input": x, "weight": weight, "bias": bias, "module": obj}, node, frame)
            case "Embedding":
                weight = self._leaf_parameter(obj, "weight")
                return self.emit("embedding", {"input": x, "weight": weight, "module": obj}, node, frame)
            case "LayerNorm" | "RMSNorm":
                assert obj.ctor is not None
                op = "torch_layer_norm" if kind == "LayerNorm" else "torch_rms_norm"
                bound = {
                    "input": x,
                    "normalized_shape": obj.ctor.arguments["normalized_shape"],
                    "weight": self._leaf_parameter(obj, "weight"),
                    **({"bias": self._leaf_parameter(obj, "bias")} if kind == "LayerNorm" else {}),
                    "eps": obj.ctor.arguments["eps"],
                    "module": obj,
                }
                return self.emit(op, bound, node, frame)
            case "Sequential":
                for item in obj.items or ():
                    x = self.call(
                        item, [x], {}, node or ast.Pass(), frame or Frame(next(iter(self.scopes.values())), {})
                    )
                return x
            case _ if kind in ACTIVATION_MODULES:
                return self.emit("act", {"input": x, "kind": ACTIVATION_MODULES[kind], "module": obj}, node, frame)
            case "GELU":
                assert obj.ctor is not None
                tanh = plain(obj.ctor.arguments["approximate"]) == "tanh"
                return self.emit(
                    "act", {"input": x, "kind": "gelu_pytorch_tanh" if tanh else "gelu", "module": obj}, node, frame
                )
        raise refuse(
            "FUS302",
            f"fusec does not know what calling torch.nn.{kind} does.",
            self.place(node, frame.scope if frame else None),
        )

    def _parameter(self, tensor: Any, kind: str, persistent: Any, node: ast.AST, frame: Frame) -> Any:
        if not isinstance(tensor, Tensor):
            self.fail("FUS301", "This parameter is not made from a tensor that fusec can follow.", node, frame)
        if kind == "buffer":
            return Parameter(None, "", tensor, "buffer", bool(plain(persistent)))
        made = self.source("parameter", {"name": "", "owner": None}, tensor.shape, "model", node, frame)
        return Parameter(None, "", made, "parameter")

    def _mask(self, name: str, kwargs: dict[str, Any], args: list[Any]) -> Instance:
        mask = Instance(External("mask"))
        mask.attrs["kind"] = MASKS[name]
        positions, given = self.given
        usual = {
            "attention_mask": (None, given),
            "position_ids": (None, positions),
            "cache_position": (None,),
            "or_mask_function": (None,),
            "and_mask_function": (None,),
        }
        free = ("config", "inputs_embeds", "input_embeds", "past_key_values")
        for key, value in kwargs.items():
            if key not in free and not any(value is u for u in usual.get(key, ())):
                mask.attrs["kind"] = "custom"
        config = kwargs.get("config", args[0] if args else None)
        if len(args) > 1 or not (isinstance(config, Instance) and config.attrs.get("__config__") is self.config_facts):
            mask.attrs["kind"] = "custom"
        return mask

    # ------------------------------------------------------------------ attention

    def _attention(self, default: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        names = ("module", "query", "key", "value", "attention_mask")
        bound = {**dict(zip(names, args, strict=False)), **kwargs}
        for name in ("query", "key", "value"):
            if not isinstance(bound.get(name), Tensor):
                self.fail("FUS405", f"The attention call's {name} is not a tensor.", node, frame)
        extra = [k for k in bound if k not in names and k not in ATTENTION_KEYWORDS]
        extra = [k for k in extra if bound[k] is not None]
        if extra:
            self.fail(
                "FUS402",
                f"The attention call passes {extra[0]!r}, and fusec does not know what it means for the result.",
                node,
                frame,
                "Attention keywords change the computation; a pattern must say what this one becomes.",
            )
        q, k, v = bound["query"], bound["key"], bound["value"]
        facts = {key: bound[key] for key in bound if key not in names}
        out = self.emit(
            "attention",
            {"query": q, "key": k, "value": v, "mask": bound.get("attention_mask"), "module": bound["module"], **facts},
            node,
            frame,
        )
        # the interface returns (batch, seq, heads, head_dim)
        if len(q.shape) == 4:
            out.shape = (q.shape[0], q.shape[2], q.shape[1], v.shape[3])
        self.node_definitions[out.node.id] = self._definition(default, bound, node, frame)
        return out, None

    def _definition(self, default: Any, bound: dict[str, Any], node: ast.AST, frame: Frame) -> AttentionDefinition:
        q, k, v = bound["query"], bound["key"], bound["value"]
        saved, self.nodes = self.nodes, []
        counter = len(saved)
        self._base = counter + 1_000_000 * (1 + self.traced_definitions)
        try:
            query, key_, value = (
                self.source("input", {"name": n}, t.shape, t.dtype) for n, t in zip("qkv", (q, k, v), strict=True)
            )
            mask = self.source("input", {"name": "mask"}, (q.shape[0], constant(1), q.shape[2], k.shape[2]), q.dtype)
            arguments = [bound["module"], query, key_, value, mask]
            rest = {n: x for n, x in bound.items() if n not in ("module", "query", "key", "value", "attention_mask")}
            result = self.call(default, arguments, rest, node, frame)
            output = result[0] if isinstance(result, tuple) else result
            scaling = bound.get("scaling")
            made = AttentionDefinition(query, key_, value, mask, output, scaling, tuple(self.nodes))
        finally:
            self.nodes = saved
            self._base = 0
        self.traced_definitions += 1
        return made

    _base = 0

    # ------------------------------------------------------------------ tensors

    def source(
        self,
        op: str,
        args: dict[str, Any],
        shape: tuple[Size, ...],
        dtype: str | None,
        node: ast.AST | None = None,
        frame: Frame | None = None,
    ) -> Tensor:
        """A node without tensor inputs whose shape is given."""
        made = Node(
            self._base + len(self.nodes), op, args, (), self._span(node, frame), self._frame(), tuple(self.branches)
        )
        out = Tensor(made, 0, shape, dtype)
        out.storage.append(out)
        made.outputs = (out,)
        self.nodes.append(made)
        return out

    def _frame(self) -> CallFrame:
        assert self.current is not None
        return self.current

    def emit(self, op: str, args: dict[str, Any], node: ast.AST | None, frame: Frame | None) -> Any:
        """Append a node; its shapes come from the table. One tensor, or a tuple for several outputs."""
        row = OPS[op]
        where = self.place(node, frame.scope if frame else None)
        for value in _tensors(args):
            if id(value) in self.stale:
                raise refuse(
                    "FUS301",
                    "This tensor shares memory with one that was changed in place since.",
                    where,
                    "fusec follows in-place operations only where no other view is used afterwards.",
                )
        try:
            shape = row.shape(args)
        except ShapeProblem as problem:
            raise refuse("FUS305", f"The shapes of {op} do not fit: {problem}.", where) from None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise refuse("FUS305", f"The shape of {op} could not be worked out ({error}).", where) from None
        dtype = result_dtype(row, args)
        if dtype is not None:
            dtype = DTYPE_ALIASES.get(dtype, dtype)
        made = Node(
            self._base + len(self.nodes),
            op,
            args,
            (),
            self._span(node, frame),
            self._frame(),
            tuple(self.branches),
            node,
        )
        several = bool(shape) and isinstance(shape[0], tuple)
        shapes = shape if several else (shape,)
        made.outputs = tuple(Tensor(made, i, s, dtype) for i, s in enumerate(shapes))
        same = op == "cast" and isinstance(args["input"], Tensor) and args["input"].dtype == dtype
        view_of = args.get("input") if row.kind == "layout" or same else None
        for out in made.outputs:
            out.storage = view_of.storage if isinstance(view_of, Tensor) else []
            out.storage.append(out)
        self.nodes.append(made)
        return made.outputs if several else made.outputs[0]

    def binary(self, op: ast.operator, left: Any, right: Any, node: ast.AST, frame: Frame) -> Any:
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            name = _BINARY_OPS.get(type(op))
            if name is None:
                self.fail("FUS301", "fusec does not know this operator on tensors.", node, frame)
            return self.emit(name, {"input": left, "other": right}, node, frame)
        return super().binary(op, left, right, node, frame)

    def aug(self, stmt: ast.AugAssign, left: Any, right: Any, frame: Frame) -> Any:
        result = super().aug(stmt, left, right, frame)
        if isinstance(left, Tensor) and isinstance(result, Tensor):
            self._mutate(left, result, stmt, frame)
        return result

    def _mutate(self, target: Tensor, result: Tensor, node: ast.AST, frame: Frame) -> None:
        """``target`` was overwritten with ``result``: other views of its memory are stale now."""
        if target.node.op == "parameter":
            self.fail("FUS301", "This statement changes a parameter in place.", node, frame)
        for other in target.storage:
            self.stale[id(other)] = self._span(node, frame)
        self._keep = [*getattr(self, "_keep", []), *target.storage]
        result.names.extend(target.names)

    def unary(self, op: ast.unaryop, value: Any, node: ast.AST, frame: Frame) -> Any:
        if isinstance(value, Tensor):
            if isinstance(op, ast.USub):
                return self.emit("neg", {"input": value}, node, frame)
            if isinstance(op, ast.Invert):
                if value.dtype != "bool":
                    self.fail("FUS301", "fusec follows ~ on truth values only: on numbers it flips bits.", node, frame)
                return self.emit("invert", {"input": value}, node, frame)
        return super().unary(op, value, node, frame)

    def compare(self, op: ast.cmpop, left: Any, right: Any, node: ast.AST, frame: Frame) -> Any:
        if MODEL_DTYPE in (plain(left), plain(right)) and plain(left) != plain(right):
            found = bool(super().compare(op, plain(left), plain(right), node, frame))
            return Sym(found, "the dtype that the model is served in", tokens=True)
        if (isinstance(left, Tensor) or isinstance(right, Tensor)) and type(op) in _COMPARE_OPS:
            return self.emit(_COMPARE_OPS[type(op)], {"input": left, "other": right}, node, frame)
        return super().compare(op, left, right, node, frame)

    def item(self, obj: Any, key: Any, node: ast.AST, frame: Frame) -> Any:
        if isinstance(obj, Tensor):
            return self.emit("getitem", {"input": obj, "index": key}, node, frame)
        inner = plain(obj)
        if isinstance(inner, Instance) and isinstance(inner.cls, External) and inner.cls.path == "output":
            values = [v for v in inner.attrs.values() if v is not None]
            index = plain(key)
            return inner.attrs[index] if isinstance(index, str) else values[index]
        if isinstance(inner, Instance) and isinstance(inner.cls, External) and inner.cls.path.endswith("ModuleDict"):
            return inner.attrs[plain(key)]
        return super().item(obj, key, node, frame)

    def set_item(self, obj: Any, key: Any, value: Any, node: ast.AST, frame: Frame) -> None:
        if isinstance(obj, External):
            self.fail("FUS302", f"The source changes an entry of {obj.path}.", node, frame)
        if isinstance(obj, Tensor):
            self.fail("FUS301", "fusec does not follow assignment into a tensor.", node, frame)
        super().set_item(obj, key, value, node, frame)

    def iterate(self, value: Any, node: ast.AST, frame: Frame) -> Iterator[Any]:
        inner = plain(value)
        if isinstance(inner, Instance) and isinstance(inner.cls, External) and inner.cls.path == "output":
            return iter([v for v in inner.attrs.values() if v is not None])
        return super().iterate(value, node, frame)

    def tensor_attribute(self, obj: Tensor, name: str, node: ast.AST, frame: Frame) -> Any:
        match name:
            case "shape":
                return tuple(_dimension(s) for s in obj.shape)
            case "dtype":
                return External(f"torch.{obj.dtype}")
            case "device":
                return External("torch.device")
            case "ndim":
                return len(obj.shape)
            case "T" | "mT":
                return self.emit("transpose", {"input": obj, "dim0": -1, "dim1": -2}, node, frame)
            case "data":
                return obj
            case "is_cuda" | "requires_grad":
                return False
        return TensorMethod(obj, name)

    def tensor_method(
        self, tensor: Tensor, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame
    ) -> Any:
        match name:
            case "size":
                dims = tuple(_dimension(s) for s in tensor.shape)
                return dims[plain(args[0])] if args else dims
            case "dim":
                return len(tensor.shape)
            case "to" | "type":
                return self._cast(tensor, args, kwargs, node, frame)
            case "type_as":
                return self.emit("cast", {"input": tensor, "dtype": External(f"torch.{args[0].dtype}")}, node, frame)
            case "item" | "tolist" | "nonzero" | "numpy":
                self.fail("FUS303", f"{name}() reads a tensor's values on the host.", node, frame)
            case "view_as" | "reshape_as":
                return self.emit(
                    "view", {"input": tensor, "shape": [_dimension(s) for s in args[0].shape]}, node, frame
                )
            case "expand_as":
                return self.emit(
                    "expand", {"input": tensor, "sizes": [_dimension(s) for s in args[0].shape]}, node, frame
                )
            case "t":
                return self.emit("transpose", {"input": tensor, "dim0": -1, "dim1": -2}, node, frame)
            case "register_hook" | "requires_grad_":
                return tensor
        if name in DTYPES or name in DTYPE_ALIASES:
            return self.emit(
                "cast", {"input": tensor, "dtype": External(f"torch.{DTYPE_ALIASES.get(name, name)}")}, node, frame
            )
        path = f"Tensor.{name}"
        if path in ACTIVATION_FUNCTIONS:
            x = self._only_input(name, [tensor, *args], kwargs, node, frame)
            return self.emit("act", {"input": x, "kind": ACTIVATION_FUNCTIONS[path]}, node, frame)
        if path in BY_ALIAS:
            return self._torch_call(BY_ALIAS[path], [tensor, *args], kwargs, node, frame)
        if name.endswith("_") and f"Tensor.{name[:-1]}" in BY_ALIAS:
            result = self._torch_call(BY_ALIAS[f"Tensor.{name[:-1]}"], [tensor, *args], kwargs, node, frame)
            self._mutate(tensor, result, node, frame)
            self.fail("FUS301", f"fusec does not follow the in-place operation {name} yet.", node, frame)
        self.fail("FUS302", f"fusec does not know the tensor method {name}.", node, frame)

    def _cast(self, tensor: Tensor, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Tensor:
        for value in (*args, kwargs.get("dtype")):
            value = plain(value)
            if isinstance(value, Tensor):
                value = External(f"torch.{value.dtype}")
            if isinstance(value, External) and value.path.rpartition(".")[2] in DTYPES:
                cast: Tensor = self.emit("cast", {"input": tensor, "dtype": value}, node, frame)
                return cast
        return tensor  # a device move

    def _torch_call(self, row: Op, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        bound: dict[str, Any] = {}
        rest = list(args)
        for param in row.params:
            if param.startswith("*"):
                name = param[1:]
                if name in kwargs:
                    bound[name] = kwargs[name]
                else:
                    bound[name] = (
                        rest if not (len(rest) == 1 and isinstance(plain(rest[0]), list | tuple)) else plain(rest[0])
                    )
                rest = []
            elif rest:
                bound[param] = rest.pop(0)
        if rest:
            self.fail("FUS302", f"{row.name} is called with more arguments than fusec knows.", node, frame)
        names = {p.lstrip("*") for p in row.params}
        if row.name in ("sum", "mean"):
            names.add("dtype")  # a cast of the input, below
        for key, value in kwargs.items():
            key = KEYWORD_ALIASES.get(key, key)
            if key in names:
                bound[key] = value
            elif key not in PLACEMENT_KEYWORDS:
                self.fail(
                    "FUS302", f"{row.name} is called with the keyword {key!r}, which fusec does not know.", node, frame
                )
        if row.name == "arange" and "end" not in bound and "start" in bound:
            bound = {"start": 0, "end": bound.pop("start"), **bound}
        dtype = plain(bound.get("dtype"))
        if isinstance(dtype, External) and row.name not in ("cast",):
            bound["dtype"] = External(
                f"torch.{DTYPE_ALIASES.get(dtype.path.rpartition('.')[2], dtype.path.rpartition('.')[2])}"
            )
            if row.name in ("sum", "mean") and isinstance(bound.get("input"), Tensor):
                bound["input"] = self.emit("cast", {"input": bound["input"], "dtype": bound.pop("dtype")}, node, frame)
        return self.emit(row.name, bound, node, frame)


class _Interface:
    """The callable that ``ALL_ATTENTION_FUNCTIONS.get_interface`` gives, with the file's eager default."""

    __slots__ = ("default",)

    def __init__(self, default: Any) -> None:
        self.default = default


_BINARY_OPS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.Mod: "remainder",
}
_COMPARE_OPS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def _tensors(args: dict[str, Any]) -> Iterator[Tensor]:
    for value in args.values():
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (v for v in value if isinstance(v, Tensor))


def _dimension(size: Size) -> Any:
    """What ``x.shape[i]`` evaluates to: a known size with its symbols, or a plain number."""
    return Sym(size.value, str(size), size, tokens=size.is_token) if size.atoms else size.value


def _need(value: Any) -> Size:
    size = size_of(value)
    if size is None:
        raise refuse("FUS305", f"A layer is built with the size {plain(value)!r}, which is not a whole number.")
    return size


def _shown(value: Any) -> str:
    return value.expr if type(value) is Sym else repr(value)


__all__ = ["AttentionDefinition", "Graph", "Tracer", "children", "is_module", "trace", "walk"]
