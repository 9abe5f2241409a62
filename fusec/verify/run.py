"""One verification: from a package's folder to the harness's request, and from its failures to diagnostics."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fusec.diagnostics import Diagnostic, EnvironmentProblem, FusecError, UsageProblem
from fusec.emit.lock import Lock, read_lock
from fusec.read import read_checkpoint
from fusec.read.hub import is_hub_id
from fusec.verify.harness.checks import Failure, Outcome, Request, Session, prove

DTYPES = ("float32", "bfloat16")
# What the original needs of a checkpoint, and no more.
WEIGHT_FILES = ("*.json", "*.safetensors", "*.py")


def run(
    out: Path,
    *,
    model: str | None,
    weights: bool,
    tp: int | None,
    pp: int | None,
    dtype: str,
    compiled: bool,
    trust_remote_code: bool,
    progress: Callable[[str], None] | None,
    session: Session | None,
) -> Outcome:
    """See :func:`fusec.verify.verify_port`."""
    lock = read_lock(out)
    if dtype not in DTYPES:
        raise UsageProblem(Diagnostic("FUS001", f"A port cannot be verified in {dtype}.", hint=f"Use {DTYPES[1]}."))
    if tp is not None and tp > 1 and tp not in lock.plan.tp_sizes:
        limits = " ".join(lock.plan.tp_limits)
        sizes = ", ".join(map(str, lock.plan.tp_sizes))
        raise UsageProblem(
            Diagnostic("FUS001", f"The port cannot run over {tp} ranks. {limits}".strip(), hint=f"It can over {sizes}.")
        )
    if pp is not None and pp > lock.plan.pp_max:
        message = f"The port cannot run in {pp} pipeline stages."
        raise UsageProblem(Diagnostic("FUS001", message, hint=f"It has {lock.plan.pp_max} layers."))
    folder, config = _checkpoint(lock, model, weights)
    request = Request(
        config=config,
        model=folder if weights else None,
        code=_code(out, lock, folder),
        source=_source(out, lock),
        tensor_parallel=tp,
        pipeline_parallel=pp,
        compiled=compiled,
        bfloat16=dtype == "bfloat16",
        trust_remote_code=trust_remote_code,
    )
    try:
        return prove(out, request, progress=progress, within=session)
    except Failure as failure:
        raise _problem(failure) from failure


def _checkpoint(lock: Lock, model: str | None, weights: bool) -> tuple[Path | None, Mapping[str, Any]]:
    """The checkpoint's folder, where there is one here, and its config."""
    if model is None:
        if not weights:
            return None, lock.config
        if not is_hub_id(lock.model):
            message = "Which checkpoint's weights to use is not known."
            raise UsageProblem(Diagnostic("FUS001", message, hint="Name its folder or Hub id with --model."))
        return _downloaded(lock.model, lock.revision), lock.config
    checkpoint = read_checkpoint(model)
    folder = checkpoint.folder
    if weights and folder is None:
        if not is_hub_id(model):
            raise UsageProblem(Diagnostic("FUS001", f"{model} names a family, which has no weights."))
        folder = _downloaded(model, checkpoint.revision)
    return folder, checkpoint.config


def _downloaded(repository: str, revision: str | None) -> Path:
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(repository, revision=revision, allow_patterns=list(WEIGHT_FILES)))
    except Exception as error:  # the library's errors have no common class short of this
        message = f"The weights of {repository} could not be fetched: {str(error).splitlines()[0]}"
        raise EnvironmentProblem(Diagnostic("FUS106", message)) from error


def _code(out: Path, lock: Lock, folder: Path | None) -> Path | None:
    """Where the checkpoint's own Python files are, if the original is among them."""
    if not lock.remote_code:
        return None
    return folder if folder is not None and any(folder.glob("*.py")) else out / Path(lock.modeling.file).parent


def _source(out: Path, lock: Lock) -> tuple[Path, str] | None:
    """The modeling file that was converted and its module name, where it is not the installed library's own."""
    if lock.remote_code:
        return None
    package, _, inside = lock.modeling.module.partition(".")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    for root in (spec.submodule_search_locations if spec else None) or ():
        file = Path(root, *inside.split(".")).with_suffix(".py")
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == lock.modeling.sha256:
            return None
    return out / lock.modeling.file, lock.modeling.module


def _problem(failure: Failure) -> FusecError:
    """The harness's failure as the error that the command line reports."""
    message = f"{str(failure)[:1].upper()}{str(failure)[1:]}."
    detail = failure.detail.strip().splitlines()
    hint = detail[-1].strip() if detail else None
    if failure.kind == "package":
        return UsageProblem(Diagnostic("FUS001", message, hint="Name a folder that `fusec convert` wrote."))
    if failure.kind == "environment":
        hint = "Install fusec[vllm], or fusec[cpu] where there is no GPU."
        return EnvironmentProblem(Diagnostic("FUS004", message, hint=hint))
    if failure.kind == "reference":
        if "was not allowed" in message:
            hint = "Read it; if you trust it, add --trust-remote-code."
        return FusecError(Diagnostic("FUS703", message, hint=hint))
    return FusecError(Diagnostic("FUS702", message, hint=hint))
