"""convert() from end to end: read, configure, trace, match, plan, rewrite, emit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusec.configure import Config, resolve_config
from fusec.diagnostics import Diagnostic, FusecError, UsageProblem, refuse
from fusec.graph.tracer import Graph, trace
from fusec.match.context import Context
from fusec.match.patterns import load_patterns
from fusec.match.run import match
from fusec.match.unit import Pattern
from fusec.plan.fold import Variant, explore, open_checks, passes, shrunk
from fusec.plan.parallel import parallel_plan
from fusec.plan.types import ParallelPlan
from fusec.read import Checkpoint, read_checkpoint
from fusec.rewrite.lower import Lowering
from fusec.rewrite.module import Written, write_module
from fusec.rewrite.types import Port

STAGES = ("read", "configure", "trace", "match", "plan", "rewrite", "emit")


@dataclass(frozen=True)
class Conversion:
    """What a conversion found and made.

    ``port`` and ``plan`` are ``None`` where ``stop_after`` named an earlier stage, whose
    printed form is then ``stage_dump``; ``out`` and ``files`` are set where a package was
    written; ``timings`` are seconds by stage, in order.
    """

    checkpoint: Checkpoint
    config: Config
    port: Port | None
    plan: ParallelPlan | None
    out: Path | None
    package: str | None
    files: tuple[str, ...]
    timings: tuple[tuple[str, float], ...]
    notes: tuple[Diagnostic, ...]
    stage_dump: str | None


def convert(
    model: str,
    out: Path | str | None = None,
    *,
    source: Path | str | None = None,
    force: bool = False,
    patterns: Path | str | None = None,
    revision: str | None = None,
    token: str | None = None,
    package_name: str | None = None,
    dry_run: bool = False,
    stop_after: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Convert ``model`` (a folder, a Hub id or a model type) into a package in the folder ``out``.

    ``source`` takes the modeling file from elsewhere; ``patterns`` adds a folder of pattern
    files; ``dry_run`` writes nothing; ``stop_after`` (one of :data:`STAGES`) ends early with
    that stage in printed form; ``progress`` is called with the name of each stage as it
    starts. Raises FusecError with all that stands in the way; nothing is then left behind.
    """
    if stop_after is not None and stop_after not in STAGES:
        raise UsageProblem(
            Diagnostic("FUS001", f"There is no stage {stop_after!r}.", None, f"The stages are {', '.join(STAGES)}.")
        )
    if out is None and not dry_run and stop_after is None:
        raise UsageProblem(Diagnostic("FUS001", "A conversion needs a folder to write to.", None, "Name one with -o."))
    from fusec.review import stages as shown

    timings: list[tuple[str, float]] = []

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        if progress is not None:
            progress(name)
        started = time.perf_counter()
        yield
        timings.append((name, time.perf_counter() - started))

    def result(dump: str | None = None, **parts: object) -> Conversion:
        facts = {"port": None, "plan": None, "out": None, "package": None, "files": (), **parts}
        return Conversion(checkpoint, config, timings=tuple(timings), notes=notes, stage_dump=dump, **facts)  # type: ignore[arg-type]

    notes: tuple[Diagnostic, ...] = ()
    with stage("read"):
        checkpoint = read_checkpoint(model, source=Path(source) if source else None, revision=revision, token=token)
        loaded = load_patterns(Path(patterns) if patterns else None)
    with stage("configure"):
        config = resolve_config(checkpoint)
    if config.slow_path:
        notes = (Diagnostic("FUS201", f"The config class was imported, not read: {config.slow_path}", severity="note"),)
    if stop_after in ("read", "configure"):
        return result(shown.show_config(checkpoint, config))
    with stage("trace"):
        graph = trace(checkpoint.modeling, checkpoint.architecture, config, checkpoint.library)
    if stop_after == "trace":
        return result(shown.show_graph(graph))
    with stage("match"):
        lowering = analyse(checkpoint, graph, loaded)
    if stop_after == "match":
        return result(shown.show_matches(lowering))
    with stage("plan"):
        # a source must compute the same with a cache and without: the first is served, the second is the reference
        uncached, _ = variant(checkpoint, shrunk(config), loaded, cached=False)
        found = explore(graph, config, lambda c: variant(checkpoint, c, loaded))
    with stage("rewrite"):
        written, served = write([lowering, uncached], found.variants, checkpoint)
        unsaid = tuple(c for made in (lowering, *(v.made for v in served)) for c in made.matches.checks)
        checks = tuple(dict.fromkeys((*open_checks(graph, config, found, served), *unsaid)))
        failed = [c for c in checks if not passes(c, config)]
        if failed:
            raise refuse("FUS005", f"The port would refuse the config that it is made from: {failed[0].expression}.")
        layers = len(lowering.matches.decoder.calls) if lowering.matches.decoder else 0
        plan = parallel_plan(written.layouts, layers)
    if not plan.tp_sizes:
        raise FusecError(Diagnostic("FUS501", "No tensor-parallel size can work: " + " ".join(plan.tp_limits)))
    port = Port(
        checkpoint.architecture, checkpoint.model_type, written.text, written.changes, checks, used(written, loaded)
    )
    if stop_after in ("plan", "rewrite"):
        return result(written.text if stop_after == "rewrite" else shown.show_plan(plan, checks), port=port, plan=plan)
    from fusec.emit import emit_package, package_files

    with stage("emit"):
        if dry_run or out is None:
            made = package_files(port, checkpoint, config, plan, package_name=package_name)
            return result(port=port, plan=plan, package=made.package)
        emitted = emit_package(port, checkpoint, config, plan, Path(out), package_name=package_name, force=force)
    return result(port=port, plan=plan, out=emitted.out, package=emitted.package, files=emitted.files)


def analyse(checkpoint: Checkpoint, graph: Graph, patterns: tuple[Pattern, ...]) -> Lowering:
    """Match a traced model and lower its layers."""
    ctx = Context(graph, checkpoint.library)
    matches = match(ctx, patterns)
    return Lowering(ctx, matches, {s.file: s.text.splitlines() for s in graph.scopes.values()})


def variant(
    checkpoint: Checkpoint, config: Config, patterns: tuple[Pattern, ...], cached: bool = True
) -> tuple[Lowering, Graph]:
    """The same source under another config, or without a cache, through the same stages."""
    graph = trace(checkpoint.modeling, checkpoint.architecture, config, checkpoint.library, cached=cached)
    lowering = analyse(checkpoint, graph, patterns)
    for call in lowering.matches.decoder.calls if lowering.matches.decoder else ():
        lowering.body(call)
    return lowering, graph


def write(
    base: list[Lowering], variants: tuple[Variant, ...], checkpoint: Checkpoint
) -> tuple[Written, tuple[Variant, ...]]:
    """One text for the config at hand and for all variants that fit it; also says which those are."""
    origin = f"{checkpoint.modeling.name} ({checkpoint.modeling.origin})"
    title = f"{checkpoint.architecture} for vLLM, converted from {origin}."
    try:
        return write_module([*base, *(v.made for v in variants)], title), variants
    except FusecError:
        if not variants:
            raise
    served: tuple[Variant, ...] = ()
    written = write_module(base, title)
    for variant in variants:
        try:
            written = write_module([*base, *(v.made for v in served), variant.made], title)
        except FusecError:
            continue
        served = (*served, variant)
    return written, served


def used(written: Written, patterns: tuple[Pattern, ...]) -> tuple[tuple[str, str], ...]:
    """The patterns that the port uses, with the digests of their files."""
    names = {c.pattern for c in written.changes}
    return tuple((p.name, p.sha256) for p in patterns if p.name in names)
