"""The emitted package: which files it has, and writing them.

``package_files`` is a function from facts to bytes and touches nothing; ``emit_package``
writes what it gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from types import MappingProxyType

import fusec
from fusec.configure.types import Config
from fusec.emit import names
from fusec.emit.checks import checks_module
from fusec.emit.lock import LOCK_NAME, Lock, SourceRecord
from fusec.emit.quote import toml
from fusec.emit.readme import readme
from fusec.emit.write import write_folder
from fusec.plan.types import ParallelPlan
from fusec.read.types import Checkpoint, Source
from fusec.rewrite.types import Port
from fusec.target import ENGINE_RANGE, MODEL_RUNTIME, REGISTRY_RUNTIME

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PackageFiles:
    """A package that is not yet on the disk. ``files`` maps relative paths with forward slashes to contents."""

    package: str
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class EmittedPackage:
    """A package on the disk. ``files`` are relative paths with forward slashes, in order."""

    out: Path
    package: str
    files: tuple[str, ...]


def emit_package(
    port: Port,
    checkpoint: Checkpoint,
    config: Config,
    plan: ParallelPlan,
    out: Path,
    *,
    package_name: str | None = None,
    force: bool = False,
) -> EmittedPackage:
    """Write the package of ``port`` to the folder ``out``, all of it or nothing.

    Raises FUS002 (usage) where ``out`` exists, or with ``force`` is not a package of fusec's;
    FUS003 where it cannot be written; FUS601 for names and expressions that are not safe to write.
    """
    made = package_files(port, checkpoint, config, plan, package_name=package_name)
    write_folder(made.files, out, force=force)
    return EmittedPackage(out, made.package, tuple(made.files))


def package_files(
    port: Port, checkpoint: Checkpoint, config: Config, plan: ParallelPlan, *, package_name: str | None = None
) -> PackageFiles:
    """Every file of the package of ``port``: the dry run of :func:`emit_package`, with its errors but the disk's."""
    stem = names.suggested_stem(port.model_type)
    package = names.check_package_name(package_name or names.suggested_package_name(port.model_type))
    architecture = names.check_class_name(port.architecture, port.modeling)
    words = {
        "package": package,
        "distribution": package.replace("_", "-").lower(),
        "architecture": architecture,
        "module": f"modeling_{stem}",
        "engine": ENGINE_RANGE,
        "guard_needed": repr(bool(port.checks)),
        "license": _license_line(port.modeling),
    }
    generated = {
        f"{package}/__init__.py": _fill("package_init.py.txt", words),
        f"{package}/_checks.py": checks_module(port.model_type, port.checks).encode(),
        f"{package}/_registry.py": REGISTRY_RUNTIME.read_bytes(),
        **{f"{package}/{path.name}": path.read_bytes() for path in MODEL_RUNTIME},
        f"{package}/modeling_{stem}.py": port.modeling.encode(),
        "tests/test_port.py": _fill("test_port.py.txt", words),
    }
    sources = _kept_sources(checkpoint)
    files = {
        **generated,
        "pyproject.toml": _fill("pyproject.toml.txt", words),
        "README.md": readme(port, checkpoint, plan, words).encode(),
        **{f".fusec/generated/{name}": content for name, content in generated.items()},
        **{f"tests/harness/{path.name}": path.read_bytes() for path in _harness()},
        **{record.file: source.text.encode() for source, record in sources},
    }
    lock = Lock(
        fusec=fusec.__version__,
        transformers=checkpoint.library.version,
        engine=ENGINE_RANGE,
        package=package,
        architecture=architecture,
        model_type=port.model_type,
        model=names.shown_model(checkpoint.model, checkpoint.folder is not None),
        revision=checkpoint.revision,
        remote_code=checkpoint.remote_code,
        config={key: value for key, value in checkpoint.config.items() if key != "_name_or_path"},
        modeling_file=f"{package}/modeling_{stem}.py",
        modeling=sources[0][1],
        configuration=sources[1][1],
        patterns=dict(port.patterns),
        checks=port.checks,
        plan=plan,
        changes=port.changes,
        files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    )
    files[LOCK_NAME] = lock.to_bytes()
    return PackageFiles(package, MappingProxyType(dict(sorted(files.items()))))


def _fill(template: str, words: Mapping[str, str]) -> bytes:
    """A template with its ``$words`` put in. Only checked names may be among them, but for TOML, which is quoted."""
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    if template.endswith(".toml.txt"):
        words = {key: value if key == "license" else toml(value) for key, value in words.items()} | {
            "bare_package": words["package"],
            "bare_engine": words["engine"],
            "entry": toml(f"{words['package']}:register"),
            "description": toml(f"{words['architecture']} for vLLM, converted from its transformers source"),
        }
    return Template(text).substitute(words).encode()


def _kept_sources(checkpoint: Checkpoint) -> list[tuple[Source, SourceRecord]]:
    """The modeling and the configuration source, each with its record; one file where both are the same."""
    kept = []
    for source in (checkpoint.modeling, checkpoint.configuration):
        file = f".fusec/source/{names.file_name(source.name)}"
        record = SourceRecord(source.name, source.module, source.origin, source.sha256, file)
        kept.append((source, record))
    first, second = kept
    if first[1].file == second[1].file and first[0].text != second[0].text:
        second = (second[0], SourceRecord(**{**vars(second[1]), "file": ".fusec/source/configuration_of_the_model.py"}))
    return [first, second]


def _harness() -> Iterable[Path]:
    """The files of the verification harness that the package's own tests run."""
    from fusec import verify  # here, because the harness is data to this stage, not code that it runs

    files: tuple[Path, ...] = getattr(verify, "HARNESS_FILES", ())
    return files


def _license_line(modeling: str) -> str:
    """The ``license`` entry of pyproject.toml, where the source's header states the one licence told apart here."""
    header = "\n".join(line for line in modeling.splitlines()[:60] if line.startswith("#"))
    apache = "Apache License, Version 2.0" in header or "SPDX-License-Identifier: Apache-2.0" in header
    return 'license = "Apache-2.0"\n' if apache else ""
