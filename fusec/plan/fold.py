"""Fold or keep: what becomes of a branch that the config decides.

A branch is *served* when both its outcomes were compiled. For every outcome that the
config at hand does not show, a config is sought that shows it (one key changed, with what
hangs together with it) and compiled too; if that works, one port serves both. If not, the
outcome is folded, and the port carries a check that refuses configs of the other kind.
No branch is ever forced: a variant is compiled from its config like any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fusec.configure.types import Config
from fusec.diagnostics import FusecError, refuse
from fusec.graph.interp import Frame, Raised
from fusec.graph.tracer import Graph, Tracer
from fusec.graph.values import ModuleScope, Span, plain
from fusec.plan.types import FoldedCheck

VARIANT_LAYERS = 2
"""Layers of a variant: enough for two kinds of layer side by side."""
MOST_LAYERS = 8
"""More layers than this are not compiled for a variant, whatever kinds of layer its lists tell apart."""
LIMIT = 24
"""Variants that are compiled at the most."""


@dataclass(frozen=True)
class Branch:
    """A branch in the source, once for all the layers and calls that reach it; ``expr`` is what
    it looked at (over ``config`` and ``layer_idx``) when it went one way."""

    span: Span
    expr: str
    selects: bool = False
    """It is no test, but a value that selects what is computed (``config.count == 2``)."""

    @property
    def key(self) -> tuple[Span, str]:
        """What makes it one branch in different configs: where it stands, and which config keys it asks about
        (one helper may be called with several flags)."""
        keys = re.findall(r"config\.([\w.]+)", self.expr) + re.findall(r"\(config, '(\w+)'", self.expr)
        return self.span, " ".join(sorted(set(keys)))


Key = tuple[Span, str]


def branches_of(graph: Graph) -> list[Branch]:
    """The branches of a trace, one for each expression that was looked at."""
    found = (Branch(g.span, general(g.expr), g.selects) for g in graph.guards)
    return list(dict.fromkeys(found))


def branches(graph: Graph) -> dict[Key, dict[bool, Branch]]:
    """The branches of a trace by their keys: outcomes that were seen, with what was looked at."""
    out: dict[Key, dict[bool, Branch]] = {}
    for guard in graph.guards:
        branch = Branch(guard.span, general(guard.expr), guard.selects)
        out.setdefault(branch.key, {}).setdefault(guard.outcome, branch)
    return out


def general(expr: str) -> str:
    """An expression with constant indices into per-layer lists read as the layer index."""
    return re.sub(r"(config\.\w+)\[\d+\]", r"\1[layer_idx]", expr)


@dataclass(frozen=True)
class Variant:
    """A config that takes some branch the other way, compiled: ``made`` is what came of it."""

    made: Any
    graph: Graph
    config: Config
    branch: Branch | None = None
    """The branch for which it was sought."""

    def outcomes(self) -> dict[Key, set[bool]]:
        """The branches it shows; it was made so that the one it was sought for goes the other way."""
        found = {key: set(seen) for key, seen in branches(self.graph).items()}
        if self.branch is not None and self.branch.selects and found.get(self.branch.key) == {True}:
            found[self.branch.key].add(False)  # a value that selects what is computed is another one here
        return found


@dataclass(frozen=True)
class Exploration:
    """What came of looking for the outcomes that a trace does not show.

    ``variants`` compiled; ``refused`` are configs that the source runs, but fusec does not
    compile, with the branch for which each was sought; ``why`` says for a branch why its other
    way does not compile; ``fixed`` are checks that follow at once."""

    variants: tuple[Variant, ...]
    refused: tuple[tuple[Config, Branch], ...]
    why: Mapping[Key, str]
    fixed: tuple[FoldedCheck, ...]


def explore(base: Graph, config: Config, compile_variant: Callable[[Config], tuple[Any, Graph]]) -> Exploration:
    """Compile variants for the outcomes that ``base`` does not show.

    ``compile_variant`` raises FusecError for a config that cannot be compiled."""
    seen = {key: set(found) for key, found in branches(base).items()}
    accepted: list[Variant] = []
    refused: list[tuple[Config, Branch]] = []
    failed: dict[Key, str] = {}
    fixed: list[FoldedCheck] = []
    tried: set[str] = set()
    queue = [(branch, config) for branch in branches_of(base)]
    asked = {b for b, _ in queue}
    for variant in grouped(config):  # grouped attention shows what one kv head, or as many as heads, would hide
        try:
            made, graph = compile_variant(variant)
        except FusecError as error:
            kv = config.canonical("num_key_value_heads")
            reason = f"grouped heads cannot be compiled: {error.diagnostics[0].message}"
            fixed.append(FoldedCheck(f"config.{kv}", config[kv], reason))
            continue
        accepted.append(Variant(made, graph, variant))
        for key, found in branches(graph).items():
            seen.setdefault(key, set()).update(found)
    budget = LIMIT
    while queue and budget:
        branch, start = queue.pop(0)
        if len(seen[branch.key]) != 1 or settled(branch, config):
            continue
        for variant in variants(branch, start, next(iter(seen[branch.key]))):
            told = repr(sorted((k, repr(v)) for k, v in variant.values.items()))
            if told in tried or not budget:
                continue
            tried.add(told)
            budget -= 1
            try:
                made, graph = compile_variant(variant)
            except FusecError as error:
                failed.setdefault(branch.key, error.diagnostics[0].message)
                if error.diagnostics[0].code >= "FUS4":  # the source runs it; before that, the config is none
                    refused.append((variant, branch))
                continue
            accepted.append(Variant(made, graph, variant, branch))
            for key, both in accepted[-1].outcomes().items():
                seen.setdefault(key, set()).update(both)
            fresh = [b for b in branches_of(graph) if b not in asked and len(seen[b.key]) == 1]
            asked.update(fresh)
            queue += [(b, variant) for b in fresh]
            if len(seen[branch.key]) == 2:
                break
    return Exploration(tuple(accepted), tuple(refused), failed, tuple(fixed))


def open_checks(
    base: Graph, config: Config, found: Exploration, served: tuple[Variant, ...]
) -> tuple[FoldedCheck, ...]:
    """The checks that a port needs which serves ``config`` and the ``served`` variants: one for each branch of
    ``base`` that none of them takes the other way, and more until no config that was seen to differ passes all."""
    seen = {key: set(shown) for key, shown in branches(base).items()}
    for variant in served:
        for key, both in variant.outcomes().items():
            seen.setdefault(key, set()).update(both)
    checks: dict[str, FoldedCheck] = {}
    own = [(branch, outcome) for shown in branches(base).values() for outcome, branch in shown.items()]
    for branch, outcome in own:
        if len(seen[branch.key]) == 1 and not settled(branch, config):
            check = folded(branch, outcome, found.why.get(branch.key))
            checks[check.expression] = check
    rejected = [*found.refused, *((v.config, v.branch) for v in found.variants if v not in served)]
    known = [branch for branch, _ in own]
    for other, sought in rejected:
        if all(passes(c, other) for c in (*checks.values(), *found.fixed)):
            check = parting(other, [(config, sought), *((v.config, v.branch) for v in served)], known)
            checks[check.expression] = check
    return (*checks.values(), *found.fixed)


def parting(refused: Config, served: list[tuple[Config, Branch | None]], known: list[Branch]) -> FoldedCheck:
    """A check that a refused config fails, and served ones pass: they differ in one of the branches that are looked
    at, first of all in the one for which a config was made.

    Raises FusecError FUS502 where the first served config, the one at hand, cannot be told from the refused one."""
    terms: list[str] = []
    for config, sought in served:
        if terms and passes(FoldedCheck(" or ".join(terms), True, ""), config):
            continue
        for branch in (*([sought] if sought else []), *known):
            term = next((t for e in _truths(branch.expr) if (t := _difference(e, refused, config))), None)
            if term is not None:
                terms.append(term)
                break
        else:
            if not terms:
                raise refuse("FUS502", "Configs that the port would compute wrongly cannot be told from this one.")
    return FoldedCheck(" or ".join(terms), True, "a config for which none of this holds computes something else")


def _difference(expression: str, refused: Config, config: Config) -> str | None:
    """``expression`` as a test that ``config`` passes and ``refused`` does not, if it can tell them apart."""
    theirs, ours = set(outcomes(expression, refused)), set(outcomes(expression, config))
    if len(theirs) == len(ours) == 1 and theirs != ours:
        return f"({expression}) != {theirs.pop()}"
    return None


def _truths(expr: str) -> tuple[str, ...]:
    """What to ask of a config about a branch: once, or over all layers and over any."""
    if "layer_idx" not in expr:
        return (f"bool({expr})",)
    return tuple(f"{word}({expr} for layer_idx in range(config.num_hidden_layers))" for word in ("all", "any"))


def passes(check: FoldedCheck, config: Config) -> bool:
    """Whether a config passes a check, as the emitted package would find."""
    return set(outcomes(f"({check.expression}) == {check.value!r}", config)) == {True}


def grouped(config: Config) -> Iterator[Config]:
    """The config with two key/value heads for at least twice as many query heads, where it is not of that kind."""
    heads, kv = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(kv, int) and heads % 2 == 0 and heads > 2 and kv in (1, heads):
        yield shrunk(with_values(config, {config.canonical("num_key_value_heads"): 2}))


def settled(branch: Branch, config: Config) -> bool:
    """Whether the class, not the checkpoint, decides the branch."""
    known = re.fullmatch(r"hasattr\(config, '(\w+)'\)", branch.expr)
    return bool(known and known[1] in config)


def folded(branch: Branch, outcome: bool, why: str | None) -> FoldedCheck:
    """The check that a config must pass to take the branch as the port does; ``why`` the other way does not compile."""
    where = f"line {branch.span.line} of {branch.span.file.rpartition('/')[2]} branches on it"
    where += (
        f", and the other way cannot be compiled: {why}"
        if why
        else ", and no config was found that takes the other way"
    )
    return FoldedCheck(_truths(branch.expr)[0 if outcome else -1], outcome, where)


def variants(branch: Branch, config: Config, outcome: bool) -> Iterator[Config]:
    """Configs, one key away, for which the branch goes the other way in some layer."""
    constants = _constants(branch.expr)
    absent = re.findall(r"getattr\(config, '(\w+)'", branch.expr)
    for key in dict.fromkeys([*re.findall(r"config\.(\w+)", branch.expr), *absent]):
        if key not in config and key not in absent:
            continue
        others = [config[k] for k in re.findall(r"config\.(\w+)", branch.expr) if k != key and k in config]
        for value in candidates(config.get(key), (*constants, *others)):
            variant = shrunk(with_values(config, {config.canonical(key): value}))
            if any(o is not outcome for o in outcomes(branch.expr, variant)):
                yield variant


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The config with some attributes changed, and what hangs together with them."""
    merged = {**config.values, **values}
    for value in values.values():
        if isinstance(value, list) and any("sliding" in str(v) for v in value):
            for name, held in merged.items():
                if name.endswith("window") and held is None:
                    merged[name] = 8
    return replace(config, values=merged)


def shrunk(config: Config) -> Config:
    """The same config with few layers: as many as it takes to have one of each kind that its lists tell apart."""
    name = config.canonical("num_hidden_layers")
    count = config.values.get(name)
    if not isinstance(count, int) or count <= VARIANT_LAYERS:
        return config
    lists = [v for v in config.values.values() if isinstance(v, list) and len(v) == count]
    kinds: dict[str, int] = {}
    for layer in range(count):
        kinds.setdefault(repr([v[layer] for v in lists]), layer)
    few = min(max(VARIANT_LAYERS, 1 + max(kinds.values())), MOST_LAYERS)
    return replace(config, values={**config.values, name: few})


def candidates(value: Any, constants: tuple[Any, ...]) -> Iterator[Any]:
    """Other values that a config key could have."""
    strings = [c for c in constants if isinstance(c, str)]
    if isinstance(value, bool):
        yield not value
    elif value is None:
        yield from (8, True, *strings)
    elif isinstance(value, int):
        numbers = [c for c in constants if type(c) is int and c > 1]
        yield from (v for v in (*numbers, value // 2, value * 2, 1, 0, None) if v != value)
    elif isinstance(value, float):
        yield from (v for v in (0.0, 1.0, value * 2, None) if v != value)
    elif isinstance(value, str):
        yield from (s for s in (*strings, None) if s != value)
    elif isinstance(value, dict):
        for key in value:
            if isinstance(value[key], str):
                yield from (
                    {**value, key: s, **_ROPE_EXTRAS}
                    for s in (*strings, "linear", "default")
                    if s not in (value[key], key)
                )
    elif isinstance(value, list) and value:
        fallback: tuple[Any, ...] = (0, 1, "full_attention")
        others = [s for s in strings if s not in value] or [c for c in fallback if type(c) is type(value[0])]
        for other in others:
            yield from (
                v for v in ([other if i % 2 else v for i, v in enumerate(value)], [other for _ in value]) if v != value
            )


_ROPE_EXTRAS = {"factor": 2.0}


def outcomes(expr: str, config: Config) -> Iterable[bool]:
    """The truth of an expression over ``config``, for each layer where it mentions ``layer_idx``."""
    count = config.get("num_hidden_layers")
    if not isinstance(count, int):
        count = 1
    layers = range(count) if "layer_idx" in expr and "for layer_idx" not in expr else (0,)
    tracer = Tracer(_NoLibrary(), config)
    scope = ModuleScope("<branch>", "<branch>", ast.Module([], []), False)
    node = ast.parse(expr, mode="eval").body
    found = set()
    for layer in layers:
        frame = Frame(scope, {"config": tracer.config_object(config, "config"), "layer_idx": layer})
        try:
            found.add(bool(plain(tracer.eval(node, frame))))
        except (FusecError, Raised):
            return ()
    return found


class _NoLibrary:
    version = ""

    def find(self, module: str) -> None:
        return None


def _constants(expr: str) -> tuple[Any, ...]:
    try:
        tree = ast.parse(expr, mode="eval")
    except SyntaxError:
        return ()
    return tuple(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))


__all__ = ["Branch", "Variant", "branches", "explore", "open_checks"]
