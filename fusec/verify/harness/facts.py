"""What a proof is asked and what it answers, as plain facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SEED = 0


class Failure(Exception):
    """The proof could not be made. ``kind``: ``environment`` (something is missing here), ``package`` (the folder is
    not a port's package), ``reference`` (the original could not be run) or ``engine`` (vLLM does not answer)."""

    def __init__(self, kind: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Row:
    """The result of one check.

    ``code`` is the diagnostic code of a failure; ``largest`` and ``bar`` are in the units of ``measure`` (``None``
    where the check got no numbers); ``where`` is the place of the largest difference.
    """

    name: str
    passed: bool
    measure: str = ""
    largest: float | None = None
    bar: float | None = None
    where: str = ""
    detail: str = ""
    code: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """All checks of one proof.

    ``port`` is the class that ran; ``own_difference`` how far the original's eager and sdpa attention are apart, and
    with a checkpoint's own weights how far both are from float64 (``own_note`` says what of it could not be measured);
    ``logit_std`` the standard deviation of the original's logits over the vocabulary; ``seconds`` what each part took.
    """

    rows: tuple[Row, ...]
    port: str
    own_difference: float
    own_note: str
    logit_std: float
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.rows) and all(row.passed for row in self.rows)


@dataclass(frozen=True)
class Request:
    """What to prove, and against what.

    ``config`` is ``config.json``'s content; ``model`` a checkpoint folder whose own weights are used (tiny random ones
    where it is ``None``); ``code`` the folder of the checkpoint's own Python files, and ``source`` a modeling file with
    its dotted module name, where the original is not the installed transformers' own (neither runs unless
    ``trust_remote_code`` allows it). ``tensor_parallel`` adds a run over that many ranks, ``pipeline_parallel``
    one over that many stages, ``compiled`` one under the
    engine's default compilation, ``bfloat16`` one in that dtype. ``timeout`` is in seconds, for each run.
    """

    config: Mapping[str, Any]
    model: Path | None = None
    code: Path | None = None
    source: tuple[Path, str] | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    compiled: bool = False
    bfloat16: bool = False
    trust_remote_code: bool = False
    seed: int = SEED
    timeout: float = 600.0
