"""Proves a converted package: the port in the real engine against the original, at a tiny size or on real weights.

The proof itself is :mod:`fusec.verify.harness`, which knows nothing of fusec and is copied into every package. What is
here reads the package's lock file, finds the checkpoint and turns what the harness raises into diagnostics.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusec.verify.harness.checks import Outcome, Session

__all__ = ["HARNESS_FILES", "verify_port"]

HARNESS_FILES: tuple[Path, ...] = tuple(sorted((Path(__file__).parent / "harness").glob("*.py")))
"""The files that a package's own tests need, to be copied as they are into one folder."""


def verify_port(
    out: str | Path,
    *,
    model: str | Path | None = None,
    weights: bool = False,
    tp: int | None = None,
    pp: int | None = None,
    dtype: str = "float32",
    compile: bool = False,  # noqa: A002 (the command line's word)
    trust_remote_code: bool = False,
    progress: Callable[[str], None] | None = None,
    session: Session | None = None,
) -> Outcome:
    """Run the port in folder ``out`` in the real engine and compare it with the original, check by check.

    ``model`` is the checkpoint to prove it on (folder, Hub id or model type) if not the one that was converted;
    ``weights`` uses that checkpoint's own weights instead of tiny random ones. float32 over one rank is always run,
    with whole prompts, cut prompts and mixed batches; ``tp`` adds a run over that many ranks, ``pp`` one in that many
    pipeline stages, ``compile`` one under the engine's default compilation, ``dtype="bfloat16"`` one in that dtype and
    a comparison of single modules in it. ``session`` serves several proofs with one import of the engine.

    A port that computes something else, crashes or does not run at all is a failed row of the outcome. Raises
    UsageProblem (FUS001) where ``out`` is not a package or an argument cannot work, EnvironmentProblem (FUS004, FUS106)
    where something is missing here, FusecError FUS703 where the original cannot be run.
    """
    from fusec.verify.run import run

    return run(
        Path(out),
        model=None if model is None else str(model),
        weights=weights,
        tp=tp,
        pp=pp,
        dtype=dtype,
        compiled=compile,
        trust_remote_code=trust_remote_code,
        progress=progress,
        session=session,
    )
