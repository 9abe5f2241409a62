"""Where the source of a module is found: the installed transformers, a checkout, a checkpoint's folder.

Nothing is imported. The installed package is located with ``find_spec`` of its top-level
name, which does not run it, and modules below it are files.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache, lru_cache
from pathlib import Path

from fusec.diagnostics import Diagnostic, EnvironmentProblem, Place, refuse
from fusec.read.files import MAX_SOURCE_BYTES, Files, decode_source, read_bytes
from fusec.read.types import Library, Source

CHECKPOINT_PACKAGE = "checkpoint"
_VERSION = re.compile(r"""^__version__\s*=\s*["']([0-9A-Za-z.+-]+)["']""", re.MULTILINE)


def resolve_import(module: str, level: int, current_module: str, is_package: bool) -> str:
    """The absolute name of ``from <level dots><module> import ...`` as written in ``current_module``.

    ``module`` may be empty (``from . import x``). A level that leaves the top package gives
    the module unchanged, which then resolves to nothing."""
    if level == 0:
        return module
    parts = current_module.split(".")
    keep = len(parts) - level + (1 if is_package else 0)
    if keep <= 0:
        return module
    return ".".join([*parts[:keep], module] if module else parts[:keep])


def module_path(module: str, package: str) -> tuple[str, ...] | None:
    """The path parts of ``module`` below ``package``; ``None`` if it is not below it or is no dotted name."""
    parts = module.split(".")
    if parts[0] != package or not all(part.isidentifier() for part in parts):
        return None
    return tuple(parts[1:])


class PackageLibrary:
    """The modules of a transformers package in a folder: installed, or a checkout's ``src/transformers``."""

    def __init__(self, root: Path, version: str, origin: str) -> None:
        self.root = root
        self.version = version
        self.origin = origin
        self._found: dict[str, Source | None] = {}

    def find(self, module: str) -> Source | None:
        """The source of ``transformers`` or a module below it, read once; ``None`` for anything else.

        Raises FusecError FUS104 or FUS105 where the file is there but cannot be read."""
        if module not in self._found:
            self._found[module] = self._read(module)
        return self._found[module]

    def _read(self, module: str) -> Source | None:
        parts = module_path(module, "transformers")
        if parts is None:
            return None
        for tail in ((*parts[:-1], f"{parts[-1]}.py") if parts else None, (*parts, "__init__.py")):
            if tail is None:
                continue
            name = "/".join(("transformers", *tail))
            data = read_bytes(self.root.joinpath(*tail), name, MAX_SOURCE_BYTES)
            if data is not None:
                return Source(name, module, decode_source(data, name), self.origin)
        return None

    def modeling_files(self) -> list[str]:
        """The dotted names of all modeling modules, in order."""
        found = sorted(self.root.glob("models/*/modeling_*.py"))
        return [f"transformers.models.{path.parent.name}.{path.stem}" for path in found]


class OverlayLibrary:
    """Files that stand for the modules of one package, in front of a library that has the rest.

    A checkpoint's ``modeling_x.py`` is ``checkpoint.modeling_x``; a ``--source`` file outside
    any checkout is a module of ``transformers.models.x``, so that its relative imports
    resolve there."""

    def __init__(self, files: Files, package: str, base: Library, origin: str) -> None:
        self.files = files
        self.package = package
        self.base = base
        self.origin = origin
        self.version = base.version
        self._found: dict[str, Source | None] = {}

    def find(self, module: str) -> Source | None:
        package, _, stem = module.rpartition(".")
        if package == self.package and stem.isidentifier():
            if module not in self._found:
                name = f"{stem}.py"
                data = self.files.read(name, MAX_SOURCE_BYTES)
                self._found[module] = (
                    None if data is None else Source(name, module, decode_source(data, name), self.origin)
                )
            if self._found[module] is not None:
                return self._found[module]
        return self.base.find(module)


@cache
def installed_library() -> PackageLibrary:
    """The installed transformers. Raises EnvironmentProblem FUS004 where there is none."""
    spec = importlib.util.find_spec("transformers")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders or not Path(folders[0], "models").is_dir():
        raise EnvironmentProblem(
            Diagnostic("FUS004", "transformers is not installed.", hint="Install it: pip install transformers.")
        )
    version = _version(Path(folders[0]))
    return PackageLibrary(Path(folders[0]), version, f"transformers {version}")


def _version(folder: Path) -> str:
    """The version that a transformers package states in its ``__init__.py``."""
    data = read_bytes(folder / "__init__.py", "transformers/__init__.py", MAX_SOURCE_BYTES) or b""
    found = _VERSION.search(data.decode("utf-8", "replace"))
    return found[1] if found else "unknown"


def checkout_of(file: Path) -> PackageLibrary | None:
    """The transformers checkout that a file lies in, ``None`` if it is in none."""
    for folder in file.resolve().parents:
        if folder.name == "transformers" and (folder / "models").is_dir() and (folder / "__init__.py").is_file():
            version = _version(folder)
            return PackageLibrary(folder, version, f"transformers {version} checkout")
    return None


@lru_cache(maxsize=64)
def parse(source: Source) -> ast.Module:
    """The syntax tree of a source; the same tree each time, so it is not to be changed.

    Raises FusecError FUS105 with the position where it is not Python."""
    try:
        return ast.parse(source.text, source.name)
    except SyntaxError as error:
        place = Place(source.name, error.lineno or 1, max(error.offset or 1, 1))
        raise refuse("FUS105", f"The file is not valid Python: {error.msg}.", place) from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) or "it is nested too deeply"
        raise refuse("FUS105", f"The file is not valid Python: {reason}.", Place(source.name, 1)) from None
