"""From what the user named to a checkpoint: its config, its modeling source, its tensor names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusec.diagnostics import FusecError, Place, refuse
from fusec.read.files import (
    MAX_SOURCE_BYTES,
    Files,
    FolderFiles,
    decode_source,
    is_file_name,
    read_bytes,
    read_config,
    read_tensors,
)
from fusec.read.hub import HubFiles, is_hub_id
from fusec.read.library import (
    CHECKPOINT_PACKAGE,
    OverlayLibrary,
    PackageLibrary,
    checkout_of,
    installed_library,
    parse,
)
from fusec.read.tables import AutoTables, auto_tables
from fusec.read.types import Checkpoint, Library, Source, TensorSpec

_CLASS_PATH = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)")
_CAUSAL_AUTO_CLASSES = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModel")
_FORMS = "MODEL is a folder with config.json, a Hub id such as org/name, or a model type of transformers."


def read_checkpoint(
    model: str, *, source: Path | None = None, revision: str | None = None, token: str | None = None
) -> Checkpoint:
    """Read what ``model`` names: a folder, a Hub id, or a model type.

    ``source`` takes the modeling file from there (with the configuration file beside it,
    if there is one). ``revision`` and ``token`` are for the Hub. Nothing that is read is
    executed. Raises FusecError (FUS101 to FUS107) and EnvironmentProblem (FUS004, FUS106).
    """
    base: Library = installed_library()
    overlay = _source_overlay(source, base) if source is not None else None
    library = overlay[0] if overlay else base
    tables = auto_tables(library)
    files, folder, config = _locate(model, tables, overlay[1] if overlay else None, revision, token)
    if files is None:
        config = _default_config(model, tables, library, overlay)
    config, notes = _as_loaded(config, tables)
    model_type, architecture = _identity(config, tables, overlay)
    if overlay is not None:
        library, modeling = overlay
        _require_class(modeling, architecture)
        parse(modeling)
        configuration, config_class = _configuration_of(model_type, tables, library, modeling.module)
        remote = False
    else:
        library, modeling, configuration, config_class, remote, more = _sources(
            config, model_type, architecture, files, tables, base, token
        )
        notes = (*notes, *more)
        if not remote:
            _require_decoder(architecture, model_type, tables, named_alone=files is None)
    if config.get("is_encoder_decoder") is True:
        raise _not_a_decoder(architecture, "an encoder-decoder")
    parse(modeling)
    tensors: Mapping[str, TensorSpec] | None = None
    if isinstance(files, HubFiles):
        tensors = files.tensors()
    elif folder is not None:
        tensors = read_tensors(folder)
    return Checkpoint(
        model=model,
        architecture=architecture,
        model_type=model_type,
        config=config,
        modeling=modeling,
        configuration=configuration,
        library=library,
        folder=folder,
        revision=files.revision if isinstance(files, HubFiles) else None,
        remote_code=remote,
        tensors=tensors,
        notes=notes,
        config_class=config_class,
    )


# ---------------------------------------------------------------------- where the files are


def _locate(
    model: str, tables: AutoTables, source: Source | None, revision: str | None, token: str | None
) -> tuple[Files | None, Path | None, dict[str, Any]]:
    """The checkpoint's files, its folder if local, and its config; no files for a model type."""
    path = Path(model).expanduser()
    is_type = model in tables.config_classes
    try:
        is_folder, exists = model != "" and path.is_dir(), path.exists()
    except (OSError, ValueError):
        is_folder = exists = False
    if is_folder:
        files = FolderFiles(path)
        config = read_config(files)
        if config is not None:
            return files, path, config
        if not is_type:
            raise refuse("FUS102", f"The folder {model} has no config.json.", hint="Name the folder of a checkpoint.")
    elif exists and model != "":
        raise refuse("FUS101", f"{model} is a file, not a folder.", hint=_FORMS)
    if is_type or (source is not None and model.replace("-", "_").isidentifier()):
        return None, None, {}
    if path.is_absolute() or model.startswith(("./", "../", "~")) or model.endswith("/"):
        raise refuse("FUS101", f"There is no folder {model}.", hint=_FORMS)
    if is_hub_id(model):
        hub = HubFiles(model, revision, token)
        config = read_config(hub)
        if config is None:
            raise refuse(
                "FUS102", f"The Hub's {model} has no config.json.", hint="It is not a transformers checkpoint."
            )
        return hub, None, config
    close = difflib.get_close_matches(model, tables.causal, 1)
    hint = f"Did you mean {close[0]}? {_FORMS}" if close else _FORMS
    raise refuse("FUS101", f"There is no folder and no model type {model!r}.", hint=hint)


def _source_overlay(path: Path, base: Library) -> tuple[Library, Source]:
    """The library in which ``--source`` resolves, and the file itself as a source of it."""
    if not path.is_file():
        raise refuse("FUS104", f"There is no modeling file {path}.", hint="--source takes the path of a .py file.")
    checkout = checkout_of(path)
    if checkout is not None:
        parts = path.resolve().relative_to(checkout.root).with_suffix("").parts
        found = checkout.find(".".join(("transformers", *parts)))
        if found is not None:
            return checkout, found
    name = path.name
    data = read_bytes(path, name, MAX_SOURCE_BYTES) or b""
    stem = path.stem if path.stem.isidentifier() else "modeling_source"
    package = f"transformers.models.{stem.removeprefix('modeling_')}"
    modeling = Source(name, f"{package}.{stem}", decode_source(data, name), "file")
    return OverlayLibrary(FolderFiles(path.parent), package, base, "file"), modeling


# ---------------------------------------------------------------------- what it is


def _default_config(
    model: str, tables: AutoTables, library: Library, overlay: tuple[Library, Source] | None
) -> dict[str, Any]:
    """The config of a bare model type: the type and its decoder architecture, nothing else."""
    architecture = tables.causal.get(model)
    if overlay is not None and (architecture is None or not _defines(overlay[1], architecture)):
        architecture = _only_causal_class(overlay[1])
    if architecture is None:
        architecture = _scan_architecture(model, tables, library)
    return {"model_type": model, "architectures": [architecture]}


def _as_loaded(config: dict[str, Any], tables: AutoTables) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config under the model type that AutoConfig loads it as, with a note where that is another."""
    new = tables.loaded_as(config)
    if new is None:
        return config, ()
    old = config["model_type"]
    config = {**config, "model_type": new}
    if config.get("architectures") == [tables.causal.get(old)] and new in tables.causal:
        config["architectures"] = [tables.causal[new]]
    return config, (f"transformers loads this config of model type {old!r} as {new!r}.",)


def _scan_architecture(model_type: str, tables: AutoTables, library: Library) -> str:
    """The one decoder class in the type's own folder, for types that the causal table does not list."""
    if model_type in tables.encoder_decoders:
        raise _not_a_decoder(tables.encoder_decoders[model_type], "an encoder-decoder")
    folder = tables.folder(model_type)
    modeling = library.find(f"transformers.models.{folder}.modeling_{folder}")
    names = _causal_classes(modeling) if modeling is not None else []
    known = [name for name in names if name in tables.causal.values()]
    if len(known) != 1:
        raise refuse(
            "FUS103",
            f"The model type {model_type!r} has no decoder-only language model in transformers {library.version}.",
            hint="fusec converts decoders (classes named ...ForCausalLM).",
        )
    return known[0]


def _identity(config: Mapping[str, Any], tables: AutoTables, overlay: tuple[Library, Source] | None) -> tuple[str, str]:
    """Model type and architecture. Raises FusecError FUS102 or FUS103."""
    model_type = config.get("model_type")
    architectures = config.get("architectures")
    if architectures is not None and not (
        isinstance(architectures, list) and all(isinstance(name, str) for name in architectures)
    ):
        raise refuse("FUS102", '"architectures" is not a list of class names.', Place("config.json", 1))
    names = list(dict.fromkeys(architectures or ()))
    if len(names) > 1:
        raise refuse(
            "FUS103",
            f"config.json names {len(names)} architectures: {', '.join(map(_quoted, names))}.",
            hint='Leave the one to convert in "architectures".',
        )
    if model_type is not None and not isinstance(model_type, str):
        raise refuse("FUS102", '"model_type" is not a string.', Place("config.json", 1))
    if not names:
        guess = tables.causal.get(model_type or "") or (_only_causal_class(overlay[1]) if overlay else None)
        if guess is None:
            raise refuse(
                "FUS103",
                "config.json names no architecture, and its model_type has no decoder in transformers.",
                hint='Add "architectures": ["...ForCausalLM"] to config.json.',
            )
        names = [guess]
    if not names[0].isidentifier():
        raise refuse("FUS103", f"The architecture {_quoted(names[0])} is not the name of a class.")
    if model_type is None:
        types = tables.types_of(names[0])
        if not types:
            raise refuse("FUS102", "config.json has no model_type.", hint='Add "model_type" to config.json.')
        model_type = types[0]
    return model_type, names[0]


def _require_decoder(architecture: str, model_type: str, tables: AutoTables, named_alone: bool) -> None:
    """Refuse a class of transformers that is not a decoder-only language model."""
    if architecture in tables.encoder_decoders.values() or (named_alone and model_type in tables.encoder_decoders):
        raise _not_a_decoder(architecture, "an encoder-decoder")
    if architecture in tables.multimodal:
        raise _not_a_decoder(architecture, "a model of images or sound beside text")
    if architecture not in tables.causal.values():
        raise _not_a_decoder(architecture, "not a decoder-only language model")


def _not_a_decoder(architecture: str, what: str) -> FusecError:
    return refuse(
        "FUS103",
        f"{architecture} is {what}, which fusec does not convert.",
        hint="fusec converts decoder-only language models (...ForCausalLM).",
    )


# ---------------------------------------------------------------------- where its source is


def _sources(
    config: Mapping[str, Any],
    model_type: str,
    architecture: str,
    files: Files | None,
    tables: AutoTables,
    base: Library,
    token: str | None,
) -> tuple[Library, Source, Source, str, bool, tuple[str, ...]]:
    """Library, modeling source, configuration source, config class, whether it is the checkpoint's own code, notes."""
    notes: tuple[str, ...] = ()
    auto_map = config.get("auto_map")
    if files is not None and isinstance(auto_map, Mapping):
        reference = next((auto_map[key] for key in _CAUSAL_AUTO_CLASSES if key in auto_map), None)
        if reference is not None:
            code, module, _ = _reference(reference, files, token)
            library = OverlayLibrary(code, CHECKPOINT_PACKAGE, base, "checkpoint")
            modeling = library.find(f"{CHECKPOINT_PACKAGE}.{module}")
            if modeling is not None:
                _require_class(modeling, architecture)
                configuration, config_class = _remote_configuration(
                    auto_map.get("AutoConfig"), files, token, model_type, tables, library
                )
                return library, modeling, configuration, config_class, True, notes
            if architecture not in tables.causal.values():
                raise refuse(
                    "FUS104",
                    f"config.json names the modeling file {module}.py, which the checkpoint does not have.",
                    hint="Put the file beside config.json, or give it with --source.",
                )
            notes = (f"config.json names {module}.py, which is absent; the class of transformers is used.",)
    modeling = _library_modeling(architecture, model_type, tables, base)
    if modeling is None:
        raise refuse(
            "FUS103",
            f"transformers {base.version} has no architecture {architecture}.",
            hint="Use a transformers that has it, or give its modeling file with --source.",
        )
    configuration, config_class = _configuration_of(model_type, tables, base, modeling.module)
    return base, modeling, configuration, config_class, False, notes


def _reference(reference: object, files: Files, token: str | None) -> tuple[Files, str, str]:
    """The files, module and class that an ``auto_map`` entry names, perhaps in another repository."""
    if isinstance(reference, list) and reference:
        reference = reference[0]
    text = reference if isinstance(reference, str) else ""
    repo, separator, path = text.rpartition("--")
    found = _CLASS_PATH.fullmatch(path)
    if found is None or (separator and not is_hub_id(repo)) or not is_file_name(f"{found[1]}.py"):
        raise refuse(
            "FUS102",
            f"config.json's auto_map names {_quoted(reference)}, which is not module.Class.",
            Place("config.json", 1),
        )
    if separator and not (isinstance(files, HubFiles) and files.repo == repo):
        beside = files.read(f"{found[1]}.py", MAX_SOURCE_BYTES)
        if beside is None:
            files = HubFiles(repo, None, token)
    return files, found[1], found[2]


def _remote_configuration(
    reference: object, files: Files, token: str | None, model_type: str, tables: AutoTables, library: Library
) -> tuple[Source, str]:
    if reference is None:
        return _configuration_of(model_type, tables, library, "")
    _, module, name = _reference(reference, files, token)
    configuration = library.find(f"{CHECKPOINT_PACKAGE}.{module}")
    if configuration is None:
        raise refuse(
            "FUS104",
            f"config.json names the configuration file {module}.py, which the checkpoint does not have.",
            hint="Put the file beside config.json.",
        )
    _require_class(configuration, name)
    return configuration, name


def _library_modeling(architecture: str, model_type: str, tables: AutoTables, library: Library) -> Source | None:
    """The modeling file that defines the class: of the model type, of the class's own type, or any."""
    tried = []
    for candidate in (model_type, *tables.types_of(architecture)):
        folder = tables.folder(candidate)
        if not folder.isidentifier() or folder in tried:
            continue
        tried.append(folder)
        source = library.find(f"transformers.models.{folder}.modeling_{folder}")
        if source is not None and _defines(source, architecture):
            return source
    if isinstance(library, PackageLibrary):
        for module in library.modeling_files():
            source = library.find(module)
            if source is not None and _defines(source, architecture):
                return source
    return None


def _configuration_of(model_type: str, tables: AutoTables, library: Library, modeling: str) -> tuple[Source, str]:
    """The configuration file and class of a model type: the one beside the modeling file first."""
    expected = tables.config_classes.get(model_type)
    package, _, stem = modeling.rpartition(".")
    folder = tables.folder(model_type)
    modules = [f"{package}.{stem.replace('modeling_', 'configuration_', 1)}"] if modeling else []
    modules.append(f"transformers.models.{folder}.configuration_{folder}")
    for module in dict.fromkeys(modules):
        source = library.find(module) if all(part.isidentifier() for part in module.split(".")) else None
        if source is None:
            continue
        name = _class_of_type(source, model_type)
        if name is None and expected is not None and _defines(source, expected):
            name = expected
        if name is not None:
            return source, name
    if expected is not None and isinstance(library, PackageLibrary):
        # A type that borrows another folder's class.
        for module in library.modeling_files():
            source = library.find(module.replace("modeling_", "configuration_", 1))
            if source is not None and _defines(source, expected):
                return source, expected
    raise refuse(
        "FUS104",
        f"No configuration class for the model type {_quoted(model_type)} was found.",
        hint="Put configuration_*.py beside the modeling file, or use a transformers that knows the type.",
    )


# ---------------------------------------------------------------------- classes in a text


def _defines(source: Source, name: str) -> bool:
    return re.search(rf"^class {re.escape(name)}\b", source.text, re.MULTILINE) is not None


def _require_class(source: Source, name: str) -> None:
    if not _defines(source, name):
        parse(source)  # a syntax error is the better message
        raise refuse(
            "FUS103",
            f"{source.name} has no class {name}.",
            Place(source.name, 1),
            'The class is the one that config.json names in "architectures".',
        )


def _causal_classes(source: Source) -> list[str]:
    return re.findall(r"^class (\w+(?:ForCausalLM|LMHeadModel))\b", source.text, re.MULTILINE)


def _only_causal_class(source: Source) -> str | None:
    names = _causal_classes(source)
    return names[0] if len(names) == 1 else None


def _class_of_type(source: Source, model_type: str) -> str | None:
    """The class whose body says ``model_type = "<type>"``."""
    pattern = rf"""^(?:class (\w+)\b|    model_type\s*(?::[^=\n]*)?=\s*["']{re.escape(model_type)}["'])"""
    current = None
    for match in re.finditer(pattern, source.text, re.MULTILINE):
        if match[1] is None:
            return current
        current = match[1]
    return None


def _quoted(value: object) -> str:
    """A string from a config, short and on one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}...'"
