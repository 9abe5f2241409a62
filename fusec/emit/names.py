"""Names that come from outside and end up in a path, in TOML or in Python: checked or made harmless here.

A name that the user chose is refused when it cannot stand as it is; a name that merely
suggests one (a model type in a config) is reduced to the letters that can.
"""

from __future__ import annotations

import ast
import keyword
import re
import sys

from fusec.diagnostics import Diagnostic, UsageProblem, refuse

# Packages that a port imports, ships beside or is run with; one of these names would hide them.
TAKEN = frozenset({"fusec", "huggingface_hub", "numpy", "safetensors", "tests", "torch", "transformers", "vllm"})

_PACKAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


def check_package_name(name: str) -> str:
    """``name`` if it can be the import name of the package; raises :class:`UsageProblem` (FUS601) if it cannot."""
    if not _PACKAGE.fullmatch(name) or keyword.iskeyword(name) or name in TAKEN or name in sys.stdlib_module_names:
        raise UsageProblem(
            Diagnostic(
                "FUS601",
                f"{name!a} cannot be the name of the package.",
                hint="Give --package-name letters, digits and underscores, not the name of a module that exists.",
            )
        )
    return name


def suggested_stem(model_type: str) -> str:
    """The ``<x>`` of ``modeling_<x>.py``: what is left of a model type in lower-case letters, digits, underscores."""
    stem = re.sub(r"[^a-z0-9]+", "_", model_type.lower()).strip("_")[:48]
    return stem or "model"


def suggested_package_name(model_type: str) -> str:
    """``<x>_port``, as a name that can be imported."""
    name = f"{suggested_stem(model_type)}_port"
    return name if name[0].isalpha() else f"model_{name}"


def check_class_name(architecture: str, modeling: str) -> str:
    """``architecture`` if it is a plain identifier and a class of ``modeling``; FUS601 or FUS005 otherwise."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", architecture) or keyword.iskeyword(architecture):
        raise refuse("FUS601", f"The architecture {architecture!a} is not the name of a class.")
    if not any(isinstance(node, ast.ClassDef) and node.name == architecture for node in ast.parse(modeling).body):
        raise refuse("FUS005", f"The port has no class {architecture}.")
    return architecture


def file_name(path: str) -> str:
    """The last part of a Python file's path: as it is where it is a plain module name, which imports rely on."""
    stem = re.split(r"[/\\]", path)[-1].removesuffix(".py")
    return f"{stem if re.fullmatch(r'[A-Za-z_][A-Za-z0-9_]{0,127}', stem) else suggested_stem(stem)}.py"


def shown_model(model: str, is_folder: bool) -> str:
    """How the package names the checkpoint: a Hub id or a folder's last part; ``MODEL`` where that is no plain word.

    Never a machine's path.
    """
    name = re.split(r"[/\\]", model.rstrip("/\\"))[-1] if is_folder else model
    return name if _MODEL.fullmatch(name) and len(name) <= 128 else "MODEL"
