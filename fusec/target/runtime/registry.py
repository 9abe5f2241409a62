"""Ties this package's model class to vLLM's model registry, for the checkpoints that it fits and no others.

The only file of the package that depends on how vLLM is built inside. Registration itself is
the public ``ModelRegistry.register_model``. That call alone would hand *every* checkpoint of the
architecture to this package, so a guard stands before the registry's lookups
(``inspect_model_cls``, ``resolve_model_cls``, ``_normalize_arch``): it answers each from a copy of
the registry in which the architecture is held by the one port that fits the checkpoint's config
or, where none does, by what vLLM had there before (its own class, or nothing, which leads vLLM to
its transformers backend). Nothing else of vLLM's resolution changes.

All ports of a process share one guard and one table, kept on the registry object. The table is
plain data, so that packages made by different versions can share it:

    {"revision": int, "native": {architecture: entry or None}, "said": {sentence},
     "ports": {architecture: {package: (entry, fits)}}}

where ``fits(config)`` gives ``None`` or the reason why the port is not for that config. The guard
of the highest revision is the one in force, whatever the order of loading.

Environment variables, read at each lookup:
    FUSEC_DISABLE   packages that must not serve, comma-separated, or ``all``
    FUSEC_PORT      packages to prefer where several fit one checkpoint, comma-separated
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Any

REVISION = 1
TABLE = "_fusec_ports"
LOOKUPS = ("inspect_model_cls", "resolve_model_cls", "_normalize_arch")
SWITCHES = ("FUSEC_DISABLE", "FUSEC_PORT")

TESTED_FROM = (0, 32)
TESTED_BELOW = (0, 34)

Fits = Callable[[Any], str | None]


def register_port(package: str, architecture: str, target: str, fits: Fits, *, guard_needed: bool) -> None:
    """Register ``target`` (``"module:Class"``) as the class of ``architecture``. May be called again.

    ``guard_needed`` says that the port took decisions which only ``fits`` can check. Where this
    vLLM's registry cannot be guarded, such a port is not registered, and says so.
    """
    log = logging.getLogger(f"vllm.plugins.{package}")  # a child of vLLM's logger, so that vLLM's handler shows it
    _carry_switches_to_ray()

    from vllm import ModelRegistry, __version__

    if not _tested(__version__):
        log.warning(
            "The port %s was made for vLLM >=%d.%d,<%d.%d and not tested with the installed %s; "
            "convert the model again for this version if it fails.",
            package, *TESTED_FROM, *TESTED_BELOW, __version__,
        )  # fmt: skip
    if not _can_guard(ModelRegistry):
        if _named(package, "FUSEC_DISABLE"):
            return
        if guard_needed:
            log.warning(
                "The port %s is not used: it serves only some checkpoints of %s, and the registry of vLLM %s "
                "cannot be told which.",
                package, architecture, __version__,
            )  # fmt: skip
            return
        ModelRegistry.register_model(architecture, target)
        return

    table = vars(ModelRegistry).setdefault(TABLE, {"revision": 0, "native": {}, "said": set(), "ports": {}})
    ports = table["ports"].setdefault(architecture, {})
    before = ModelRegistry.models.get(architecture)
    if not _is_port(before, ports):
        table["native"][architecture] = before
    ModelRegistry.register_model(architecture, target)
    ports[package] = (ModelRegistry.models[architecture], fits)
    if table["revision"] < REVISION:
        _install_guard(ModelRegistry, table)


def _install_guard(registry: Any, table: dict[str, Any]) -> None:
    """Put this revision's guard before the lookups of ``registry``, in place of an older one."""
    for name in LOOKUPS:
        # taken from the class, never from the instance: guards do not stack
        setattr(registry, name, _guarded(registry, table, getattr(type(registry), name)))
    table["revision"] = REVISION


def _guarded(registry: Any, table: dict[str, Any], lookup: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(lookup)

    @functools.wraps(lookup)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _, asked, model_config = signature.bind(registry, *args, **kwargs).args
        _forget_loaded()
        return lookup(_as_seen_by(registry, table, asked, model_config), asked, model_config)

    return guarded


def _forget_loaded() -> None:
    """Empty the model loader's memory of classes, which knows a checkpoint by its path but not by its config.

    Every engine's config is looked up before its model is loaded, so a second engine of one process does not get the
    class of the first where a config override or a switch says otherwise.
    """
    loader = sys.modules.get("vllm.model_executor.model_loader.utils")
    getattr(loader, "_MODEL_ARCH_BY_HASH", {}).clear()


def _as_seen_by(registry: Any, table: dict[str, Any], architectures: str | list[str], model_config: Any) -> Any:
    """A copy of ``registry`` in which each architecture that has ports is held by whoever serves this checkpoint."""
    asked = [architectures] if isinstance(architectures, str) else architectures
    models = dict(registry.models)
    for architecture, ports in table["ports"].items():
        if not _is_port(models.get(architecture), ports):
            # someone registered the architecture after the ports did: theirs, as vLLM has it
            if architecture in asked:
                _say(table, f"{architecture} was registered again after the port {_list(ports)}, which gives way.")
            continue
        native = table["native"][architecture]
        # a port proved itself on its own architecture, not on one that vLLM would derive from it
        wanted = architecture in asked and getattr(model_config, "model_impl", "auto") in ("auto", "vllm")
        package = _choose(table, architecture, model_config) if wanted else None
        entry = native if package is None else ports[package][0]
        if entry is None:
            del models[architecture]
        else:
            models[architecture] = entry
    return dataclasses.replace(registry, models=models)


def _choose(table: dict[str, Any], architecture: str, model_config: Any) -> str | None:
    """The package that serves this checkpoint, ``None`` for vLLM's own; raises ``ValueError`` where several could."""
    fitting: list[str] = []
    for package, (_, fits) in sorted(table["ports"][architecture].items()):
        switched_off = _named(package, "FUSEC_DISABLE")
        reason = "FUSEC_DISABLE names it" if switched_off else fits(model_config.hf_config)
        if reason is None:
            fitting.append(package)
        else:
            _say(table, f"The port {package} does not serve this {architecture} checkpoint: {reason}.")
    if len(fitting) > 1:
        preferred = [package for package in fitting if _named(package, "FUSEC_PORT")]
        if len(preferred) != 1:
            raise ValueError(
                f"Several installed ports serve {architecture} and fit this checkpoint: {', '.join(fitting)}. "
                f"Choose one with FUSEC_PORT={fitting[0]}, or switch the others off with FUSEC_DISABLE."
            )
        fitting = preferred
    if not fitting:
        return None
    native = table["native"][architecture]
    instead = "vLLM has no class for it" if native is None else "on purpose, in place of the class that vLLM has for it"
    _say(table, f"{architecture} is served by the port {fitting[0]} ({instead}).")
    return fitting[0]


def _is_port(entry: Any, ports: dict[str, Any]) -> bool:
    return any(entry == own for own, _ in ports.values())


def _say(table: dict[str, Any], sentence: str) -> None:
    """Log ``sentence`` once; a lookup is made a dozen times per engine."""
    log = logging.getLogger("vllm.plugins.fusec")
    # vLLM sets its logging up after it loads plugins: what nobody could see does not count as said
    if sentence not in table["said"] and log.isEnabledFor(logging.INFO):
        table["said"].add(sentence)
        log.info("%s", sentence)


def _list(packages: dict[str, Any]) -> str:
    return ", ".join(sorted(packages))


def _named(package: str, switch: str) -> bool:
    names = {name.strip() for name in os.environ.get(switch, "").split(",")}
    return package in names or (switch == "FUSEC_DISABLE" and "all" in names)


def _carry_switches_to_ray() -> None:
    """Have vLLM copy our switches, where they are set, to Ray's workers, which must decide as the driver does."""
    name = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
    copied = [word for word in os.environ.get(name, "").split(",") if word]
    missing = [switch for switch in SWITCHES if switch in os.environ and switch not in copied]
    if missing:
        os.environ[name] = ",".join(copied + missing)


def _tested(version: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)", version)
    return match is not None and TESTED_FROM <= (int(match[1]), int(match[2])) < TESTED_BELOW


def _can_guard(registry: Any) -> bool:
    """Whether this vLLM's registry has the lookups that the guard stands before, with the arguments it knows."""
    lookups = [getattr(type(registry), name, None) for name in LOOKUPS]
    return (
        dataclasses.is_dataclass(registry)
        and isinstance(getattr(registry, "models", None), dict)
        and all(callable(f) and list(inspect.signature(f).parameters)[2:] == ["model_config"] for f in lookups)
    )
