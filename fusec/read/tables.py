"""What transformers itself says about model types: their config classes, folders and architectures.

The auto classes keep this as literal dictionaries; they are read out of the text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from fusec.diagnostics import refuse
from fusec.read.types import Library, Source

CONFIG_TABLE = "CONFIG_MAPPING_NAMES"
FOLDER_TABLE = "SPECIAL_MODEL_TYPE_TO_MODULE_NAME"
CAUSAL_TABLE = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
ENCODER_DECODER_TABLES = ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES")
MULTIMODAL_TABLES = ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES")
_AUTO = "transformers.models.auto"
# A rule of AutoConfig: a config of one type that has a certain key is loaded as another type.
_RETYPED = re.compile(
    r'if config_dict\["model_type"\] == "([\w-]+)" and "(\w+)" in config_dict:\n'
    r'(?:.*\n){0,8}?\s+config_dict\["model_type"\] = "([\w-]+)"'
)
_KNOWN: WeakKeyDictionary[Library, AutoTables] = WeakKeyDictionary()


@dataclass(frozen=True)
class AutoTables:
    """What the auto classes know.

    ``config_classes``: model type -> config class name; ``folders``: model type -> folder under
    ``models/`` where it is not the type itself; ``causal``: model type -> decoder architecture;
    ``encoder_decoders``: model type -> sequence-to-sequence architecture;
    ``multimodal``: architectures that take images or sound beside text;
    ``retyped``: (model type, key, model type that a config of the first with that key is loaded as).
    """

    config_classes: dict[str, str]
    folders: dict[str, str]
    causal: dict[str, str]
    encoder_decoders: dict[str, str]
    multimodal: frozenset[str]
    retyped: tuple[tuple[str, str, str], ...]

    def folder(self, model_type: str) -> str:
        return self.folders.get(model_type, model_type.replace("-", "_"))

    def loaded_as(self, config: Mapping[str, Any]) -> str | None:
        """The other model type that AutoConfig loads this config as, ``None`` if it loads it as it says."""
        model_type = config.get("model_type")
        return next((new for old, key, new in self.retyped if old == model_type and key in config), None)

    def types_of(self, architecture: str) -> list[str]:
        """The model types whose decoder architecture this is."""
        return [model_type for model_type, name in self.causal.items() if name == architecture]


def auto_tables(library: Library) -> AutoTables:
    """The tables of a transformers, read once. Raises FusecError FUS104 where its layout is not known."""
    if library not in _KNOWN:
        _KNOWN[library] = _read_tables(library)
    return _KNOWN[library]


def _read_tables(library: Library) -> AutoTables:
    retyped: tuple[tuple[str, str, str], ...] = ()
    tables: dict[str, dict[str, Any]] = {}
    for name in ("auto_mappings", "configuration_auto"):
        source = library.find(f"{_AUTO}.{name}")
        if source is not None:
            _read(source, (CONFIG_TABLE, FOLDER_TABLE), tables)
            retyped += tuple((m[1], m[2], m[3]) for m in _RETYPED.finditer(source.text))
    modeling = library.find(f"{_AUTO}.modeling_auto")
    if modeling is not None:
        _read(modeling, (CAUSAL_TABLE, *ENCODER_DECODER_TABLES, *MULTIMODAL_TABLES), tables)
    if not tables.get(CONFIG_TABLE) or not tables.get(CAUSAL_TABLE):
        raise refuse(
            "FUS104",
            f"The auto classes of transformers {library.version} have no table of model types that fusec can read.",
            hint="Use a transformers release that fusec supports.",
        )
    encoder_decoders: dict[str, str] = {}
    for name in ENCODER_DECODER_TABLES:
        encoder_decoders.update(_strings(tables.get(name, {})))
    return AutoTables(
        _strings(tables[CONFIG_TABLE]),
        _strings(tables.get(FOLDER_TABLE, {})),
        _strings(tables[CAUSAL_TABLE]),
        encoder_decoders,
        frozenset(name for table in MULTIMODAL_TABLES for name in _strings(tables.get(table, {})).values()),
        retyped,
    )


def _strings(table: dict[str, Any]) -> dict[str, str]:
    """Only the entries that map a name to one name; a table may hold tuples of alternatives."""
    flat = {k: v[0] if isinstance(v, tuple) and v else v for k, v in table.items()}
    return {k: v for k, v in flat.items() if isinstance(k, str) and isinstance(v, str)}


def _read(source: Source, names: Iterable[str], tables: dict[str, dict[str, Any]]) -> None:
    """Apply the top-level statements that define or update the named tables.

    Parsing the whole of these files would take longer than all the rest of reading, so
    only the statements' own text is parsed: it starts in column 0 and ends at a line that
    starts with its closing bracket."""
    pattern = rf"^({'|'.join(names)})(?:\.update\(|\s*(?::[^=\n]+)?=\s*)[^\n]*(?:\n(?![A-Za-z_@#])[^\n]*)*"
    for match in re.finditer(pattern, source.text, re.MULTILINE):
        try:
            statement = ast.parse(match[0]).body[0]
        except SyntaxError:
            continue
        entries = (
            _value(statement.value, tables) if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) else None
        )
        if entries is None:
            continue
        if isinstance(statement, ast.Expr):
            tables.setdefault(match[1], {}).update(entries)
        else:
            tables[match[1]] = entries


def _value(node: ast.expr | None, tables: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The dictionary that an expression of these files builds, ``None`` for any other expression."""
    if isinstance(node, ast.Name):
        return tables.get(node.id)
    if isinstance(node, ast.Dict):
        result: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(_value(value, tables) or {})
            else:
                result[_literal(key)] = _literal(value)
        return result
    if isinstance(node, ast.Call):
        result = {}
        for argument in node.args:
            pairs = _value(argument, tables)
            result.update(pairs if pairs is not None else dict(_literal(argument) or ()))
        for keyword in node.keywords:
            if keyword.arg is None:
                result.update(_value(keyword.value, tables) or {})
            else:
                result[keyword.arg] = _literal(keyword.value)
        return result
    return None


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
