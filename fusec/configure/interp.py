"""The interpreter for configuration classes: plain values, strict dataclasses, attribute maps.

It follows imports into transformers' configuration and rope modules and runs, as
interpreted code, what their classes run when they are constructed: field defaults,
``__post_init__``, rope standardisation and validators. What the base class does through
``__getattribute__`` and generated code (attribute maps, dataclass construction) is done
here natively, since it is Python's own machinery and not the library's.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Any

from fusec.configure.fields import (
    MISSING,
    Field,
    FieldSpec,
    is_class_var,
    postpones_annotations,
    type_problem,
)
from fusec.diagnostics import FusecError
from fusec.graph.interp import _MISSING as MISSING_ATTRIBUTE
from fusec.graph.interp import Frame, Interpreter, Raised
from fusec.graph.values import (
    BoundMethod,
    ClassValue,
    External,
    Function,
    Instance,
    ModuleScope,
    NativeFunction,
)
from fusec.read.tables import AutoTables
from fusec.read.types import Library

BASE_MODULE = "transformers.configuration_utils"
BASE_NAMES = ("PreTrainedConfig", "PretrainedConfig")
# Modules whose definitions are interpreted when a configuration imports them; the rest stays external.
_FOLLOWED = ("modeling_rope_utils", "type_validators", "heterogeneity")
_ABSENT = object()


class Rejected(Raised):
    """What Python's dataclass and property machinery raises, as done natively here."""


class ConfigInterpreter(Interpreter):
    """Constructs configuration objects from interpreted sources."""

    def __init__(self, library: Library, tables: AutoTables) -> None:
        super().__init__(library)
        self.tables = tables
        self._fields: dict[ClassValue, list[Field]] = {}
        self._maps: dict[ClassValue, dict[str, str]] = {}
        self._data_descriptors: dict[tuple[ClassValue, str], Any] = {}

    # ------------------------------------------------------------------ imports

    def interprets(self, module: str, name: str) -> bool:
        last = module.rpartition(".")[2]
        if last.startswith("configuration_"):
            return not module.startswith("transformers.models.auto.")
        return last in _FOLLOWED or module.partition(".")[0] not in ("transformers", "huggingface_hub")

    def import_from(self, module: str, name: str) -> Any:
        parts = module.split(".")
        if len(parts) == 3 and parts[:2] == ["transformers", "models"] and name.endswith("Config"):
            # A model's package binds its classes lazily: they are in its configuration file.
            return super().import_from(f"{module}.configuration_{parts[2]}", name)
        if module in ("transformers", BASE_MODULE) and name in BASE_NAMES:
            return super().import_from(BASE_MODULE, name)
        if module == "transformers" and name.endswith("Config"):
            model_type = next((t for t, cls in self.tables.config_classes.items() if cls == name), None)
            if model_type is not None:
                return self.config_class(model_type)
        value = super().import_from(module, name)
        if isinstance(value, External) and module.endswith("heterogeneity"):
            return super().import_from(f"{module}.configuration_utils", name)
        return value

    def config_class(self, model_type: str) -> Any:
        """The class that the auto table maps a model type to."""
        name, folder = self.tables.config_classes.get(model_type), self.tables.folder(model_type)
        if name is None:
            raise Raised(KeyError(model_type), None, None)
        return super().import_from(f"transformers.models.{folder}.configuration_{folder}", name)

    def external_item(self, obj: Any, key: Any, node: ast.AST, frame: Frame) -> Any:
        if isinstance(obj, External) and obj.path.endswith(".CONFIG_MAPPING") and isinstance(key, str):
            return self.config_class(key)
        return super().external_item(obj, key, node, frame)

    # ------------------------------------------------------------------ externals

    def call_external(self, path: str, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        head, _, name = path.rpartition(".")
        if name == "get_logger" or name == "getLogger":
            return External("logger")
        if head == "logger" or path in ("warnings.warn", "warnings.simplefilter"):
            return None
        if name.startswith("is_") and name.endswith("_available"):
            return False  # dtypes stay strings, and optional libraries do not shape a configuration
        if name == "field" or name == "validated_field":
            return _field_spec(kwargs)
        if path == "builtins.len" and isinstance(args[0], Instance):
            length = self.method(args[0], "__len__")
            if length is not None:
                return self.call(length, [], {}, node, frame)
        if path == "numpy.prod":
            return math.prod(args[0])
        if path in ("copy.copy", "copy.deepcopy"):
            return _copied(args[0], deep=name == "deepcopy")
        if name == "for_model" and head.endswith("AutoConfig"):
            return self.call(self.config_class(args[0]), args[1:], kwargs, node, frame)
        return super().call_external(path, args, kwargs, node, frame)

    def decorate(self, func: Any, decorator: ast.expr, frame: Frame) -> Any:
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "getter", "deleter"):
            prop = self.eval(decorator.value, frame)
            if isinstance(prop, Function) and isinstance(func, Function) and decorator.attr == "setter":
                clone = Function(
                    prop.name,
                    prop.node,
                    prop.scope,
                    prop.closure,
                    prop.defaults,
                    prop.kw_defaults,
                    prop.owner,
                    "property",
                )
                clone.setter = func
                return clone
            return prop
        if isinstance(func, Function) and _last_name(decorator) == "as_validated_field":
            return NativeFunction(
                func.name,
                lambda *args, **kwargs: _field_spec(dict(zip(("default",), args, strict=False)) | kwargs, func),
            )
        return super().decorate(func, decorator, frame)

    def is_instance(self, value: Any, classes: Any, node: ast.AST, frame: Frame) -> bool:
        if isinstance(classes, External) and not isinstance(value, Instance):
            kinds = _ABSTRACT.get(classes.path.rpartition(".")[2])
            if kinds is not None:
                return isinstance(value, kinds)
        return super().is_instance(value, classes, node, frame)

    # ------------------------------------------------------------------ configuration classes

    def base_of(self, cls: Any) -> ClassValue | None:
        """The library's base configuration class among a class's ancestors, ``None`` if it is no configuration."""
        for c in self.mro(cls):
            if isinstance(c, ClassValue) and c.name in BASE_NAMES and c.scope.name == BASE_MODULE:
                return c
        return None

    def is_dataclass_config(self, cls: Any) -> bool:
        """Whether the class is a dataclass, as all that derive from transformers 5's base class are."""
        base = self.base_of(cls)
        return base is not None and "dataclass" in _decorator_names(base)

    def is_strict(self, cls: ClassValue) -> bool:
        return "strict" in _decorator_names(cls)

    def fields(self, cls: ClassValue) -> list[Field]:
        """The dataclass fields of a configuration class, base classes first, as ``dataclasses.fields`` orders them."""
        if cls not in self._fields:
            found: dict[str, Field] = {}
            for c in reversed(self.mro(cls)):
                if not isinstance(c, ClassValue) or not self.is_dataclass_config(c):
                    continue
                space = self.namespace(c)
                checked = self._strict_part(cls, c) and not postpones_annotations(c.scope.tree)
                for name, annotation in c.annotations.items():
                    if is_class_var(annotation):
                        continue
                    default = self._unpoison(space[name]) if name in space else self._inherited_default(c, name)
                    spec = default if isinstance(default, FieldSpec) else FieldSpec(default)
                    found[name] = Field(name, spec, annotation, c.scope, checked)
            self._fields[cls] = list(found.values())
        return self._fields[cls]

    def _strict_part(self, cls: ClassValue, part: ClassValue) -> bool:
        """Whether ``part``'s fields are type-checked on objects of ``cls``: a strict class has them."""
        return any(isinstance(c, ClassValue) and self.is_strict(c) and part in self.mro(c) for c in self.mro(cls))

    def _inherited_default(self, cls: ClassValue, name: str) -> Any:
        for c in self.mro(cls)[1:]:
            if isinstance(c, ClassValue) and name in self.namespace(c):
                return self.namespace(c)[name]
        return MISSING

    def attribute_map(self, cls: ClassValue) -> dict[str, str]:
        if cls not in self._maps:
            found = self.class_attribute(cls, "attribute_map")
            self._maps[cls] = found if isinstance(found, dict) else {}
        return self._maps[cls]

    # ------------------------------------------------------------------ construction

    def instantiate(self, cls: ClassValue, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame) -> Any:
        if not self.is_dataclass_config(cls):
            return super().instantiate(cls, args, kwargs, node, frame)
        obj = Instance(cls)
        self._initialise(obj, self.mro(cls), args, kwargs, node, frame)
        return obj

    def _initialise(
        self,
        obj: Instance,
        order: tuple[Any, ...],
        args: list[Any],
        kwargs: dict[str, Any],
        node: ast.AST,
        frame: Frame,
    ) -> None:
        """Run the ``__init__`` of the first class of ``order`` that has one, written or generated."""
        for cls in order:
            if not isinstance(cls, ClassValue):
                continue
            written = self.namespace(cls).get("__init__")
            if written is None and not self.is_dataclass_config(cls):
                continue
            if written is not None:
                self.call(BoundMethod(self._unpoison(written), obj), args, kwargs, node, frame)
            else:
                self._fill(obj, cls, args, kwargs, node, frame)
            if self.is_strict(cls):
                self._validate(obj, cls, node, frame)
            return

    def _fill(
        self, obj: Instance, cls: ClassValue, args: list[Any], kwargs: dict[str, Any], node: ast.AST, frame: Frame
    ) -> None:
        """The generated ``__init__``: fields in order, then ``__post_init__`` with what is no field."""
        if args:
            raise Rejected(TypeError(f"{cls.name} takes keyword arguments only"), node, None)
        extra = dict(kwargs)
        for item in self.fields(cls):
            if item.name in extra:
                value = extra.pop(item.name)
            elif item.spec.factory is not MISSING:
                value = self.call(item.spec.factory, [], {}, node, frame)
            elif item.spec.default is not MISSING:
                value = item.spec.default
            else:
                raise Rejected(TypeError(f"Missing required field - {item.name!r}"), node, None)
            self.set_attribute(obj, item.name, value, node, frame)
        self.call(self.attribute(obj, "__post_init__", node, frame), [], extra, node, frame)

    def _validate(self, obj: Instance, cls: ClassValue, node: ast.AST, frame: Frame) -> None:
        """Run the class's ``validate_*`` methods, in the order of their names."""
        names = {n for c in self.mro(cls) if isinstance(c, ClassValue) for n in self.namespace(c)}
        for name in sorted(n for n in names if n.startswith("validate_")):
            method = self.class_attribute(cls, name)
            if isinstance(method, Function):
                self.call(method, [obj], {}, node, frame)

    def super_attribute(self, obj: Any, name: str, node: ast.AST, frame: Frame) -> Any:
        target = obj.obj
        if isinstance(target, Instance) and self.is_dataclass_config(target.cls):
            order = self.mro(target.cls)
            after = order[order.index(obj.cls) + 1 :] if obj.cls in order else ()
            if name == "__init__":
                return NativeFunction(name, lambda *a, **k: self._initialise(target, after, list(a), k, node, frame))
            if name == "__getattribute__":
                return NativeFunction(name, lambda key: self._raw(target, key, node, frame))
            if name == "__setattr__":
                return NativeFunction(name, lambda key, value: target.attrs.__setitem__(key, value))
        return super().super_attribute(obj, name, node, frame)

    # ------------------------------------------------------------------ attributes

    def instance_attribute(self, obj: Instance, name: str, node: ast.AST, frame: Frame) -> Any:
        if self.base_of(obj.cls) is None:
            return super().instance_attribute(obj, name, node, frame)
        return self._read(obj, self.attribute_map(obj.cls).get(name, name), node, frame)

    def _read(self, obj: Instance, name: str, node: ast.AST, frame: Frame) -> Any:
        """Attribute lookup after the attribute map, with the refusal of what differs between layers."""
        if name in self._per_layer(obj):
            raise Raised(RuntimeError(f"{name!r} differs between layers"), node, None)
        return self._lookup(obj, name, node, frame)

    @staticmethod
    def _per_layer(obj: Instance) -> Any:
        """The attributes that differ between layers and cannot be read from the configuration as a whole."""
        spec = obj.attrs.get("_heterogeneity_spec")
        if spec is None or obj.attrs.get("allow_global_per_layer_attribute_access", False):
            return ()
        return spec.attrs["per_layer_attributes"]

    def _lookup(self, obj: Instance, name: str, node: ast.AST, frame: Frame) -> Any:
        """Attribute lookup; properties go before the object's own values."""
        found = self.class_attribute(obj.cls, name)
        if isinstance(found, Function) and found.kind == "property":
            return self.call_function(found, [obj], {}, node, frame)
        if isinstance(found, FieldSpec) and name not in obj.attrs:
            return MISSING_ATTRIBUTE if found.default is MISSING else found.default
        return super().instance_attribute(obj, name, node, frame)

    def _raw(self, obj: Instance, name: str, node: ast.AST, frame: Frame) -> Any:
        value = self._lookup(obj, name, node, frame)
        return self.missing_attribute(obj, name, node, frame) if value is MISSING_ATTRIBUTE else value

    def attribute(
        self, obj: Any, name: str, node: ast.AST, frame: Frame, default: Any = MISSING_ATTRIBUTE, dynamic: bool = False
    ) -> Any:
        if isinstance(obj, Function) and obj.kind == "property" and name in ("__set__", "fset", "__get__", "fget"):
            accessor = obj.setter if name in ("__set__", "fset") else obj
            return NativeFunction(name, lambda *a: self.call_function(accessor, list(a), {}, node, frame))
        try:
            return super().attribute(obj, name, node, frame, default, dynamic)
        except Raised as raised:
            if default is not MISSING_ATTRIBUTE and isinstance(raised.value, AttributeError):
                return default
            raise

    def has_attribute(self, obj: Any, name: str, node: ast.AST, frame: Frame) -> Any:
        return self.attribute(obj, name, node, frame, default=_ABSENT) is not _ABSENT

    def set_attribute(self, obj: Any, name: str, value: Any, node: ast.AST, frame: Frame) -> None:
        if not isinstance(obj, Instance) or self.base_of(obj.cls) is None:
            return super().set_attribute(obj, name, value, node, frame)
        cls = obj.cls
        if self.is_dataclass_config(cls):
            self._check(cls, name, value, node, frame)
        name = self.attribute_map(cls).get(name, name)
        found = self.class_attribute(cls, name)
        if isinstance(found, Function) and found.kind == "property":
            if found.setter is None:
                raise Rejected(AttributeError(f"property {name!r} of {cls.name!r} object has no setter"), node, None)
            self.call_function(found.setter, [obj, value], {}, node, frame)
        else:
            obj.attrs[name] = value

    def _check(self, cls: ClassValue, name: str, value: Any, node: ast.AST, frame: Frame) -> None:
        for item in self.fields(cls):
            if item.name == name:
                if item.checked and (problem := type_problem(value, item.annotation)) is not None:
                    raise Rejected(TypeError(f"the field {name!r} of {cls.name} {problem}"), node, None)
                for validator in item.spec.validators:
                    self.call(validator, [value], {}, node, frame)
                return

    def iterate(self, value: Any, node: ast.AST, frame: Frame) -> Iterator[Any]:
        if isinstance(value, Instance) and self.base_of(value.cls) is not None:
            hidden = self._per_layer(value)
            return iter([name for name in value.attrs if name not in hidden])
        if isinstance(value, Instance) and self.method(value, "__iter__") is None:
            length, item = self.method(value, "__len__"), self.method(value, "__getitem__")
            if length is not None and item is not None:
                count = self.call(length, [], {}, node, frame)
                return iter([self.call(item, [i], {}, node, frame) for i in range(count)])
        return super().iterate(value, node, frame)

    # ------------------------------------------------------------------ everything that can be read

    def readable(self, obj: Instance, scope: ModuleScope) -> Iterator[tuple[str, Any]]:
        """Every attribute of a configuration object that is no method: its own, then its classes'."""
        frame = Frame(scope, {})
        node = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)
        names = dict.fromkeys(obj.attrs)
        for cls in self.mro(obj.cls):
            if isinstance(cls, ClassValue):
                names.update(dict.fromkeys(self.namespace(cls)))
        names.update(dict.fromkeys(self.attribute_map(obj.cls)))
        for name in names:
            if name.startswith("__") or not isinstance(name, str):
                continue
            try:
                value = self.attribute(obj, name, node, frame)
            except (Raised, FusecError):
                continue  # a property that fails for this configuration, as it would for the model
            if not isinstance(value, Function | BoundMethod | NativeFunction):
                yield name, value


def _copied(value: Any, deep: bool) -> Any:
    """A copy as the ``copy`` module makes it; definitions are never copied."""
    if isinstance(value, Instance):
        return Instance(value.cls, {k: _copied(v, deep) if deep else v for k, v in value.attrs.items()})
    if isinstance(value, dict):
        return {k: _copied(v, deep) if deep else v for k, v in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(_copied(v, deep) if deep else v for v in value)
    return value


def _last_name(decorator: ast.expr) -> str:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _decorator_names(cls: ClassValue) -> set[str]:
    return {_last_name(d) for d in cls.node.decorator_list}


def _field_spec(kwargs: dict[str, Any], *validators: Any) -> FieldSpec:
    return FieldSpec(kwargs.get("default", MISSING), kwargs.get("default_factory", MISSING), validators)


_ABSTRACT: dict[str, Any] = {
    "Sequence": (list, tuple, str, range),
    "Iterable": (list, tuple, str, range, dict, set, frozenset),
    "Mapping": dict,
    "MutableMapping": dict,
    "Number": (int, float, complex),
}
