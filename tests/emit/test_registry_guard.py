"""The file that ties a package to vLLM's registry, against a registry of the same shape with no engine behind it."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import types
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fusec.target import REGISTRY_RUNTIME


@dataclass(frozen=True)
class Entry:
    target: str


@dataclass
class Registry:
    """What the guard relies on of vLLM's registry, and nothing else."""

    models: dict[str, Entry] = field(default_factory=dict)

    def register_model(self, model_arch: str, model_cls: str) -> None:
        self.models[model_arch] = Entry(model_cls)

    def inspect_model_cls(self, architectures: list[str], model_config: Any) -> str:
        return self.resolve_model_cls(architectures, model_config)

    def resolve_model_cls(self, architectures: list[str], model_config: Any) -> str:
        asked = [architectures] if isinstance(architectures, str) else architectures
        return next((self.models[name].target for name in asked if name in self.models), "backend")

    def _normalize_arch(self, architecture: str, model_config: Any) -> str:
        return architecture if architecture in self.models else "normalized"

    def supports(self, architectures: list[str], model_config: Any) -> str:
        """Stands for the many questions that vLLM asks by way of `inspect_model_cls`."""
        return self.inspect_model_cls(architectures, model_config)


def load(name: str = "guard") -> Any:
    """The runtime as a package carries it: every package has a copy of its own."""
    spec = importlib.util.spec_from_file_location(name, REGISTRY_RUNTIME)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A module `vllm` with a registry that has one class of its own."""
    registry = Registry({"Known": Entry("native")})
    module = types.ModuleType("vllm")
    module.ModelRegistry, module.__version__ = registry, "0.33.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    for switch in ("FUSEC_DISABLE", "FUSEC_PORT", "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"):
        monkeypatch.delenv(switch, raising=False)
    return registry


def config(value: str) -> SimpleNamespace:
    return SimpleNamespace(hf_config=SimpleNamespace(value=value), model_impl="auto")


def fits(value: str):
    return lambda config: None if config.value == value else f"value is {config.value}"


def anything(config: Any) -> None:
    return None


def register(package: str, check, architecture: str = "Known", runtime: Any = None, needed: bool = True) -> None:
    (runtime or load()).register_port(package, architecture, f"{package}:C", check, guard_needed=needed)


def test_the_port_serves_what_it_fits_and_vllm_the_rest(engine: Registry) -> None:
    register("a", fits("x"))
    register("n", fits("x"), "New")
    assert engine.resolve_model_cls(["Known"], config("x")) == "a:C"
    assert engine.resolve_model_cls(["Known"], config("y")) == "native"
    assert engine.resolve_model_cls("Known", model_config=config("x")) == "a:C"
    assert engine.resolve_model_cls(architectures=["Known"], model_config=config("x")) == "a:C"
    assert engine.resolve_model_cls(["New"], config("x")) == "n:C"
    assert engine.resolve_model_cls(["New"], config("y")) == "backend"
    assert engine.resolve_model_cls(["Other"], config("x")) == "backend"
    assert engine.resolve_model_cls(["New", "Known"], config("y")) == "native"


def test_every_question_gets_the_same_answer(engine: Registry) -> None:
    register("a", fits("x"))
    register("n", fits("x"), "New")
    assert engine.inspect_model_cls(["Known"], config("x")) == engine.supports(["Known"], config("x")) == "a:C"
    assert engine.inspect_model_cls(["Known"], config("y")) == engine.supports(["Known"], config("y")) == "native"
    assert engine._normalize_arch("New", config("x")) == "New"
    assert engine._normalize_arch("New", config("y")) == "normalized"


def test_registration_is_the_public_one(engine: Registry) -> None:
    register("n", fits("x"), "New")
    assert engine.models["New"] == Entry("n:C")


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "a", "c", "a", "b")])
def test_the_order_of_loading_decides_nothing(engine: Registry, monkeypatch, order: tuple[str, ...]) -> None:
    checks = {"a": fits("x"), "b": fits("y"), "c": fits("x")}
    for package in order:
        register(package, checks[package])
    assert engine.resolve_model_cls(["Known"], config("y")) == "b:C"
    assert engine.resolve_model_cls(["Known"], config("z")) == "native"
    with pytest.raises(ValueError, match=r"fit this checkpoint: a, c.*FUSEC_PORT=a"):
        engine.resolve_model_cls(["Known"], config("x"))
    monkeypatch.setenv("FUSEC_PORT", "c")
    assert engine.resolve_model_cls(["Known"], config("x")) == "c:C"
    monkeypatch.setenv("FUSEC_PORT", "a,c")
    with pytest.raises(ValueError, match="fit this checkpoint"):
        engine.resolve_model_cls(["Known"], config("x"))
    monkeypatch.setenv("FUSEC_DISABLE", "c")
    assert engine.resolve_model_cls(["Known"], config("x")) == "a:C"
    monkeypatch.setenv("FUSEC_DISABLE", "all")
    assert engine.resolve_model_cls(["Known"], config("x")) == "native"


def test_a_chosen_port_that_does_not_fit_is_not_used(engine: Registry, monkeypatch) -> None:
    register("a", fits("x"))
    monkeypatch.setenv("FUSEC_PORT", "a")
    assert engine.resolve_model_cls(["Known"], config("y")) == "native"


@pytest.mark.parametrize("impl", ["transformers", "terratorch"])
def test_another_implementation_that_was_asked_for_is_not_the_ports_matter(engine: Registry, impl: str) -> None:
    register("a", anything)
    register("b", anything)
    asked = config("x")
    asked.model_impl = impl
    assert engine.resolve_model_cls(["Known"], asked) == "native"


def test_the_registry_itself_is_not_changed_by_a_lookup(engine: Registry) -> None:
    register("a", fits("x"))
    before = dict(engine.models)
    engine.resolve_model_cls(["Known"], config("y"))
    assert engine.models == before


def test_a_later_registration_of_somebody_else_wins(engine: Registry, caplog) -> None:
    register("a", anything)
    engine.register_model("Known", "theirs")
    with caplog.at_level(logging.INFO, logger="vllm"):
        assert engine.resolve_model_cls(["Known"], config("x")) == "theirs"
    assert "Known was registered again after the port a, which gives way." in caplog.text
    register("a", fits("x"))  # and is what the port stands before, if it is registered again
    assert engine.resolve_model_cls(["Known"], config("x")) == "a:C"
    assert engine.resolve_model_cls(["Known"], config("y")) == "theirs"


def test_what_is_decided_is_said_once(engine: Registry, caplog) -> None:
    register("a", fits("x"))
    register("n", anything, "New")
    engine.resolve_model_cls(["Known"], config("x"))  # before the engine sets up its log: nobody hears
    with caplog.at_level(logging.INFO, logger="vllm"):
        for _ in range(3):
            engine.resolve_model_cls(["Known"], config("x"))
            engine.resolve_model_cls(["Known"], config("y"))
            engine.resolve_model_cls(["New"], config("y"))
    assert [record.message for record in caplog.records] == [
        "Known is served by the port a (on purpose, in place of the class that vLLM has for it).",
        "The port a does not serve this Known checkpoint: value is y.",
        "New is served by the port n (vLLM has no class for it).",
    ]


@pytest.mark.parametrize(("version", "warned"), [("0.31.0", True), ("0.32.1", False), ("0.34.0", True), ("dev", True)])
def test_an_untested_engine_is_said_in_one_sentence(engine: Registry, monkeypatch, caplog, version, warned) -> None:
    monkeypatch.setattr(sys.modules["vllm"], "__version__", version)
    with caplog.at_level(logging.INFO, logger="vllm"):
        register("a", fits("x"))
    assert len(caplog.records) == warned
    if warned:
        assert f"made for vLLM >=0.32,<0.34 and not tested with the installed {version}" in caplog.records[0].message
    assert engine.resolve_model_cls(["Known"], config("x")) == "a:C"


class OtherRegistry(Registry):
    """A registry as a later vLLM may have it."""

    def resolve_model_cls(self, model_config: Any) -> str:  # type: ignore[override]
        return "changed"


def test_where_the_registry_cannot_be_guarded(engine: Registry, monkeypatch, caplog) -> None:
    """A port that serves some checkpoints only is not registered for all; one that serves all is."""
    other = OtherRegistry({"Known": Entry("native")})
    monkeypatch.setattr(sys.modules["vllm"], "ModelRegistry", other)
    register("a", fits("x"))
    assert other.models["Known"] == Entry("native")
    assert "The port a is not used: it serves only some checkpoints of Known" in caplog.text
    register("b", fits("x"), needed=False)
    assert other.models["Known"] == Entry("b:C")
    monkeypatch.setenv("FUSEC_DISABLE", "c")
    register("c", fits("x"), "New", needed=False)
    assert "New" not in other.models


@pytest.mark.parametrize("newer_first", [True, False])
def test_packages_of_different_versions_share_the_newest_guard(engine: Registry, monkeypatch, newer_first) -> None:
    old, new = load("old"), load("new")
    monkeypatch.setattr(new, "REVISION", old.REVISION + 1)
    served: list[str] = []
    for name, runtime in (("old", old), ("new", new)):
        choose = runtime._choose
        monkeypatch.setattr(runtime, "_choose", lambda *args, n=name, c=choose: (served.append(n), c(*args))[1])
    for runtime in (new, old) if newer_first else (old, new):
        register("a" if runtime is old else "b", fits("x" if runtime is old else "y"), runtime=runtime)
    assert engine.resolve_model_cls(["Known"], config("x")) == "a:C"
    assert engine.resolve_model_cls(["Known"], config("y")) == "b:C"
    assert engine.resolve_model_cls(["Known"], config("z")) == "native"
    assert set(served) == {"new"}


def test_the_switches_reach_ray_workers(engine: Registry, monkeypatch) -> None:
    """Ray's workers get the variables that vLLM copies; they must decide as the driver does."""
    register("a", anything)
    assert "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY" not in os.environ
    monkeypatch.setenv("FUSEC_DISABLE", "b")
    monkeypatch.setenv("VLLM_RAY_EXTRA_ENV_VARS_TO_COPY", "MINE")
    register("a", anything)
    register("a", anything)
    assert os.environ["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"] == "MINE,FUSEC_DISABLE"


def test_what_the_loader_remembers_is_forgotten(engine: Registry, monkeypatch) -> None:
    """It remembers by path; whether the port serves hangs on the config and on the environment."""
    loader = types.ModuleType("vllm.model_executor.model_loader.utils")
    loader._MODEL_ARCH_BY_HASH = {1: "a:C"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, loader.__name__, loader)
    register("a", anything)
    engine.inspect_model_cls(["Known"], config("x"))
    assert loader._MODEL_ARCH_BY_HASH == {}
