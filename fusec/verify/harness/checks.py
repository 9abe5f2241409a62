"""Proves a package: makes or takes a checkpoint, runs the original and the port, and compares them check by check."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import layers, rounding
from .activate import Plugin, environment, read_plugin
from .compare import (
    DIVERGENCE_FACTOR,
    LARGEST_OWN_DIFFERENCE,
    Difference,
    Run,
    difference,
    float32_bar,
    mean_divergence,
)
from .engine import Job, not_compiled, root_cause
from .facts import Failure, Outcome, Request, Row
from .server import NoAnswer
from .session import Session, session
from .shrink import ORIGINAL_POSITIONS, VOCABULARY, rope_tables

__all__ = ["Failure", "Outcome", "Request", "Row", "Session", "prove", "session"]

# The batches of a plain proof, by the number of the sequence: two whole prompts in one step; a prompt longer than a
# step; a prompt longer than what a step has left, so that its rest is mixed with the other's decoding.
WHOLE, CUT, MIXED = (0, 1), (2,), (1, 2)
BATCHES = (WHOLE, CUT, MIXED)
LONGEST = 2


@dataclass(frozen=True)
class Lengths:
    """Prompt lengths, the most tokens of a step (at least the first two together, less than the third), the longest
    sequence and the number of new tokens. All prompts are longer than a shrunk config's window."""

    prompts: tuple[int, int, int]
    step: int
    model: int
    new: int = 10


USUAL = Lengths((40, 23, 100), 64, 128)
# Where the rotary table is another one beyond the original context, and the engine decides once by the longest
# sequence it is to take: every prompt beyond it, and a run of its own with every prompt within it.
BEYOND = Lengths((80, 70, 200), 160, 256)
WITHIN = Lengths((40, 23, 51), ORIGINAL_POSITIONS, ORIGINAL_POSITIONS)
# Real vocabularies are hundreds of times larger, and the engine hands over every value as a Python number.
REAL = Lengths((24, 13, 48), 40, 64, 5)
SWITCHING_ROPES = ("longrope", "su")


def prove(
    out: Path,
    request: Request,
    *,
    progress: Callable[[str], None] | None = None,
    work: Path | None = None,
    within: Session | None = None,
) -> Outcome:
    """Prove the package in folder ``out``.

    ``progress`` is called with the name of each part that begins; ``work`` is an empty folder in which the tiny
    checkpoint, logs and log-probabilities are left (a temporary one where it is ``None``); ``within`` is a session to
    use (one is opened where it is ``None``).

    Raises :class:`Failure` where no proof could be made; a port that is wrong, crashes or does not run is a failed row.
    """
    try:
        plugin = read_plugin(out.resolve())
    except ValueError as error:
        raise Failure("package", str(error)) from error
    threads = 1 if request.model is None else os.cpu_count() or 1
    with (
        nullcontext(within) if within else session(threads) as opened,
        tempfile.TemporaryDirectory(prefix="verify-") as folder,
    ):
        place = (work or Path(folder)).resolve()
        try:
            return _Proof(plugin, request, opened, place, progress or (lambda part: None)).run()
        except NoAnswer as error:
            raise Failure("engine", str(error), error.detail) from error


@dataclass(frozen=True)
class _Original:
    """What the original computed for one set of lengths. ``runs`` and ``bfloat16`` are by sequence."""

    lengths: Lengths
    prompts: tuple[tuple[int, ...], ...]
    model: str
    runs: list[Run]
    bfloat16: list[Run]
    recording: Path
    modules: Path
    own_difference: float
    own_note: str
    logit_std: float

    @property
    def bar(self) -> float:
        return float32_bar(self.own_difference)


class _Proof:
    """One proof: what it was asked, and what it has learned so far."""

    def __init__(
        self, plugin: Plugin, request: Request, session: Session, work: Path, progress: Callable[[str], None]
    ) -> None:
        self.plugin, self.request, self.session, self.work, self.progress = plugin, request, session, work, progress
        self.environment = environment(plugin, work, session.path)
        self.seconds: dict[str, float] = {}
        self.port = ""

    def run(self) -> Outcome:
        switching = any(table.get("rope_type", table.get("type")) in SWITCHING_ROPES
                        for table in rope_tables(self.request.config))  # fmt: skip
        if self.request.model is not None:
            lengths, switching = REAL, False
        else:
            lengths = BEYOND if switching else USUAL
        original = self._original("original", lengths, None)
        started = time.monotonic()
        self.progress("starting vLLM")
        try:
            self.session.engine.ready(self.request.timeout)
        except NoAnswer as error:
            raise Failure("environment", f"vLLM cannot be imported: {error}", error.detail) from error
        self.seconds["starting vLLM"] = time.monotonic() - started
        rows = list(self._checks(original, switching))
        rows = self._name_layers(original, rows)
        return Outcome(
            tuple(rows), self.port, original.own_difference, original.own_note, original.logit_std, self.seconds
        )

    # ---- the original

    def _original(self, name: str, lengths: Lengths, model: str | None) -> _Original:
        """Run the original over prompts of these lengths; ``model`` is a checkpoint of this proof to use again."""
        self.progress("running the original")
        started = time.monotonic()
        request = self.request
        given = str(request.model.resolve()) if request.model else model
        size = _vocabulary(request.config) if request.model else min(_vocabulary(request.config), VOCABULARY)
        generator = np.random.default_rng(request.seed)
        prompts = tuple(tuple(generator.integers(3, size, size=length).tolist()) for length in lengths.prompts)
        job = {
            "name": name,
            "work": str(self.work),
            "environment": {},
            "timeout": request.timeout,
            "config": dict(request.config),
            "model": given,
            "code": str(request.code.resolve()) if request.code else None,
            "source": [str(request.source[0].resolve()), request.source[1]] if request.source else None,
            "prompts": prompts,
            "new_tokens": lengths.new,
            "record": LONGEST,
            "bfloat16": request.bfloat16,
            "real": request.model is not None,
            "trust_remote_code": request.trust_remote_code,
            "seed": request.seed,
        }
        try:
            self.session.original.ready(request.timeout)
        except NoAnswer as error:
            raise Failure("environment", f"transformers cannot be imported: {error}", error.detail) from error
        answer = self.session.original.run(job)
        if "error" in answer:
            reason = answer["error"].removeprefix("NoOriginal: ")
            raise Failure("reference", f"the original could not be run: {reason}", "\n".join(answer["log"]))
        own = float(answer["own_difference"])
        if not own <= LARGEST_OWN_DIFFERENCE:
            raise Failure(
                "reference",
                f"the original is no reference: its eager and sdpa attention give log-probabilities {own:.3g} apart",
            )
        with np.load(self.work / f"{name}.npz") as stored:
            arrays = {key: stored[key] for key in stored.files}
        runs = [
            Run(len(prompt), arrays[f"logprobs_{i}"], tuple(arrays[f"tokens_{i}"].tolist()))
            for i, prompt in enumerate(prompts)
        ]
        self.seconds[name] = time.monotonic() - started
        return _Original(
            lengths,
            prompts,
            answer["model"],
            runs,
            [replace(run, logprobs=arrays[f"bfloat16_{i}"]) for i, run in enumerate(runs) if request.bfloat16],
            self.work / f"{name}.layers.npz",
            self.work / f"{name}.modules.npz",
            own,
            answer["own_note"],
            float(answer["logit_std"]),
        )

    # ---- the port

    def _engine(
        self, original: _Original, name: str, batches: tuple[tuple[int, ...], ...] = BATCHES, **changes: Any
    ) -> _Answer:
        """Run the port over batches of the original's sequences."""
        self.progress(f"running the port: {name}")
        started = time.monotonic()
        job = Job(
            name=name.replace(" ", "-"),
            model=original.model,
            batches=tuple(tuple(original.prompts[i] for i in batch) for batch in batches),
            new_tokens=original.lengths.new,
            work=str(self.work),
            token_budget=original.lengths.step,
            max_model_len=original.lengths.model,
            trust_remote_code=self.request.trust_remote_code,
            timeout=self.request.timeout,
            environment=self.environment,
        )
        job = replace(job, **changes)
        answer = self.session.engine.run(asdict(job))
        self.seconds[name] = time.monotonic() - started
        log = (self.work / f"{job.name}.log").read_text(encoding="utf-8", errors="replace")
        return _Answer(job, batches, answer, log, self.seconds[name])

    def _checks(self, original: _Original, switching: bool) -> Iterator[Row]:
        answer = self._engine(original, "float32")
        whole = self._failed_to_run("float32", answer) or self._compare("float32", answer, original, [0])
        yield whole
        if whole.code in ("FUS702", "FUS704"):
            return  # what follows would fail for the same reason
        for batch, name in ((1, "chunked prefill"), (2, "mixed batch")):
            yield self._not_what_it_says(name, batch, answer) or self._compare(name, answer, original, [batch])
        if switching:
            name = "within original context"
            short = self._original("original-within", WITHIN, original.model)
            answer = self._engine(short, name, (WHOLE,))
            yield self._failed_to_run(name, answer) or self._compare(name, answer, short, [0])
        size = self.request.tensor_parallel
        if size is not None and size > 1:
            name = f"tensor parallel {size}"
            answer = self._engine(original, name, tensor_parallel=size)
            yield self._failed_to_run(name, answer) or self._compare(name, answer, original)
        stages = self.request.pipeline_parallel
        if stages is not None and stages > 1:
            name = f"pipeline parallel {stages}"
            answer = self._engine(original, name, pipeline_parallel=stages)
            yield self._failed_to_run(name, answer) or self._compare(name, answer, original)
        if self.request.compiled:
            name = "compiled"
            answer = self._engine(original, name, eager=False)
            yield (
                self._failed_to_run(name, answer)
                or self._not_compiled(name, answer)
                or self._compare(name, answer, original)
            )
        if self.request.bfloat16:
            name = "bfloat16"
            answer = self._engine(original, name, (WHOLE, CUT), dtype="bfloat16", modules=str(original.modules))
            failed = self._failed_to_run(name, answer)
            yield failed or self._divergence(name, answer, original)
            if failed is None:
                yield self._rounding(answer)

    # ---- judging

    def _failed_to_run(self, name: str, answer: _Answer) -> Row | None:
        facts = answer.facts
        if "error" in facts:
            cause = root_cause(answer.log) or facts["error"]
            detail = "\n".join([f"the engine could not run the port: {cause}", *facts["log"]])
            return Row(name, False, detail=detail, code="FUS702", seconds=answer.seconds)
        for rank, worker in enumerate(facts["workers"]):
            ran = f"{worker['module']}.{worker['name']}"
            if worker["module"].partition(".")[0] not in self.plugin.packages:
                packages = " or ".join(sorted(self.plugin.packages))
                detail = f"in worker {rank} the engine ran {ran}, which is not in {packages}"
                return Row(name, False, detail=detail, code="FUS704", seconds=answer.seconds)
            self.port = ran
        return None

    def _not_what_it_says(self, name: str, batch: int, answer: _Answer) -> Row | None:
        """A check named after a way of scheduling counts only if the engine scheduled that way."""
        steps = [step for step in answer.facts["steps"] if step["batch"] == batch]
        if batch == 1:
            happened = sum(step["prompts"] > 0 for step in steps) > 1
        else:
            happened = any(step["prompts"] and step["decodes"] for step in steps)
        if happened:
            return None
        return Row(name, False, detail="the engine never scheduled it so", code="FUS702", seconds=answer.seconds)

    def _not_compiled(self, name: str, answer: _Answer) -> Row | None:
        problem = not_compiled(answer.log)
        if not problem and not all(worker["compiled"] for worker in answer.facts["workers"]):
            problem = "no module of the port is marked for compilation (support_torch_compile)"
        return Row(name, False, detail=problem, code="FUS702", seconds=answer.seconds) if problem else None

    def _compare(self, name: str, answer: _Answer, original: _Original, batches: list[int] | None = None) -> Row:
        """Compare the batches (all where ``None``) with the original; the row is about the worst of them."""
        worst: Difference | None = None
        chosen = range(len(answer.batches)) if batches is None else batches
        for batch in chosen:
            sequences = answer.batches[batch]
            found = difference(
                [original.runs[i] for i in sequences], answer.runs(batch, original), original.bar, sequences
            )
            if worst is None or (found.token_problem is not None, found.largest) > (
                worst.token_problem is not None,
                worst.largest,
            ):
                worst = found
        assert worst is not None
        passed = worst.largest <= original.bar and worst.token_problem is None
        detail = worst.token_problem or ("" if worst.tokens_agree else "greedy tokens part at a near tie")
        code = None if passed else "FUS701"
        measure = "log-probability"
        return Row(name, passed, measure, worst.largest, original.bar, worst.where, detail, code, answer.seconds)

    def _divergence(self, name: str, answer: _Answer, original: _Original) -> Row:
        mine: list[Run] = []
        order: list[int] = []
        for batch, sequences in enumerate(answer.batches):
            mine += answer.runs(batch, original)
            order += sequences
        own, _ = mean_divergence(original.runs, original.bfloat16, range(len(original.runs)))
        largest, where = mean_divergence([original.runs[i] for i in order], mine, order)
        bar = DIVERGENCE_FACTOR * own
        detail = f"from the float32 original; the bfloat16 original's is {own:.3g}"
        passed = largest <= bar
        code = None if passed else "FUS701"
        return Row(name, passed, "mean KL", largest, bar, where, detail, code, answer.seconds)

    def _rounding(self, answer: _Answer) -> Row:
        """Module by module on the same inputs; where two forms round differently, the detail says so."""
        name, seconds = "bfloat16 modules", answer.seconds
        found = rounding.summarize(answer.facts["modules"])
        if not found:
            detail = "no module of the port has the name of one of the original's and can be run alone"
            return Row(name, False, detail=detail, code="FUS702", seconds=seconds)
        worst = found[0]
        by_scale = worst.scale / rounding.SCALE_FACTOR > worst.error / rounding.ERROR_FACTOR
        measure = "scale error / original's" if by_scale else "error / original's"
        largest, bar = (worst.scale, rounding.SCALE_FACTOR) if by_scale else (worst.error, rounding.ERROR_FACTOR)
        others = [f"{row.module} (error {row.error:.2f} of the original's)" for row in found if row.differing > 0]
        detail = f"round differently: {', '.join(others)}" if others else f"all {len(found)} kinds round alike"
        passed = worst.excess <= 1
        code = None if passed else "FUS701"
        return Row(name, passed, measure, largest, bar, worst.module, detail, code, seconds)

    def _name_layers(self, original: _Original, rows: list[Row]) -> list[Row]:
        """Where a run in float32 over one rank is wrong, run once more with every module recorded and say which
        differs first."""
        within = ("float32", "chunked prefill", "mixed batch")
        index = next((i for i, row in enumerate(rows) if row.name in within and row.code == "FUS701"), None)
        if index is None:
            return rows
        answer = self._engine(original, "layers", (CUT,), record_layers=True, token_budget=None, new_tokens=1)
        if "error" in answer.facts:
            return rows
        found = layers.first_divergence(
            layers.load(original.recording),
            layers.load(self.work / "layers.layers.npz"),
            answer.facts["workers"][0]["packed"],
        )
        detail = "; ".join(part for part in (rows[index].detail, str(found)) if part)
        rows[index] = replace(rows[index], detail=detail)
        return rows


@dataclass(frozen=True)
class _Answer:
    """What one engine gave back."""

    job: Job
    batches: tuple[tuple[int, ...], ...]
    facts: dict[str, Any]
    log: str
    seconds: float

    def runs(self, batch: int, original: _Original) -> list[Run]:
        """What the port computed in one batch, in the order of its sequences."""
        with np.load(Path(self.job.work) / f"{self.job.name}.npz") as stored:
            return [
                Run(
                    len(original.prompts[sequence]),
                    stored[f"logprobs_{batch}_{place}"],
                    tuple(stored[f"tokens_{batch}_{place}"].tolist()),
                )
                for place, sequence in enumerate(self.batches[batch])
            ]


def _vocabulary(config: Mapping[str, Any]) -> int:
    text = config.get("text_config")
    size = (text if isinstance(text, Mapping) else config).get("vocab_size")
    return size if isinstance(size, int) else VOCABULARY
