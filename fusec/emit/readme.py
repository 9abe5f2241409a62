"""The package's README: how to install, serve and verify it, what was rewritten, what was dropped and why, limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import fusec
from fusec.emit.names import shown_model
from fusec.emit.quote import code, prose
from fusec.plan.types import ParallelPlan
from fusec.read.types import Checkpoint
from fusec.rewrite.types import Change, Port

REMOTE_CODE = """
The original is code that came with the checkpoint, and verifying runs it: `FUSEC_TRUST_REMOTE_CODE=1 pytest .` says
that you trust it. The port itself is no part of it, but where transformers lacks the checkpoint's config class, vLLM
reads the config with the checkpoint's code and asks for `--trust-remote-code`.
"""


def readme(port: Port, checkpoint: Checkpoint, plan: ParallelPlan, words: Mapping[str, str]) -> str:
    """The text of README.md. ``words`` are the checked names that the templates use."""
    model = shown_model(checkpoint.model, checkpoint.folder is not None)
    sections = [
        _head(port, checkpoint, words),
        # a model type names no checkpoint to serve
        _use(
            "MODEL" if checkpoint.folder is None and checkpoint.model == checkpoint.model_type else model,
            checkpoint.remote_code,
            words,
        ),
        _rewritten(port.changes),
        _dropped(port.changes),
        _limits(port, plan, words),
    ]
    return "\n".join(sections)


def _head(port: Port, checkpoint: Checkpoint, words: Mapping[str, str]) -> str:
    return f"""\
# {words["architecture"]} for vLLM

{code(port.architecture)} (model type {code(port.model_type)}) as a vLLM plugin: vLLM's own layers, kernels and
parallelism, in the shape of the modeling file that it was converted from: {code(checkpoint.modeling.name)}
({prose(checkpoint.modeling.origin)}), by fusec {fusec.__version__}. It does not need fusec to run.
"""


def _use(model: str, remote_code: bool, words: Mapping[str, str]) -> str:
    trust = REMOTE_CODE if remote_code else ""
    return f"""\
## Install and serve

    pip install .
    vllm serve {model}

vLLM {words["engine"]}, under whichever distribution name it is installed, loads the plugin by itself in every process.
The log says which class serves: `{words["architecture"]} is served by the port {words["package"]}`.

- `FUSEC_DISABLE={words["package"]}` (or `all`) switches the port off: vLLM then uses what it would have
  used without it. `VLLM_PLUGINS`, vLLM's own list of the plugins to load, works too.
- Where two installed ports fit one checkpoint, vLLM refuses to start; `FUSEC_PORT={words["package"]}` chooses this one.

## Verify

    pytest .

runs the original and the port side by side at a tiny size. With fusec installed, `fusec verify .` does more: tensor
parallelism, `torch.compile`, bfloat16, the checkpoint's own weights. `fusec diff .` shows the original beside the port.
{trust}"""


def _rewritten(changes: Iterable[Change]) -> str:
    rows = [
        f"| {code(change.cls)} | {code(change.pattern) if change.pattern else ''} | {prose(change.what)} "
        f"| {_lines(change)} |"
        for change in changes
        if change.kind in ("rewritten", "added")
    ]
    if not rows:
        return "## What was rewritten\n\nNothing.\n"
    head = ["## What was rewritten", "", "| class | pattern | what | lines of the source |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _dropped(changes: Iterable[Change]) -> str:
    rows = [
        f"- {code(change.cls)}{f', {_lines(change)}' if change.source_lines else ''}: {prose(change.what)}"
        for change in changes
        if change.kind == "dropped"
    ]
    return "\n".join(["## What was dropped, and why", "", *(rows or ["Nothing."])]) + "\n"


def _limits(port: Port, plan: ParallelPlan, words: Mapping[str, str]) -> str:
    sizes = ", ".join(map(str, plan.tp_sizes)) or "none"
    stages = f"1 to {plan.pp_max}" if plan.pp_max > 1 else "1"
    rows = [
        f"- Made for vLLM {words['engine']}; with another version it says so when it is loaded.",
        f"- Tensor-parallel sizes that can work for the config it was made from: {sizes}.",
        *(f"  - {prose(limit)}" for limit in plan.tp_limits),
        f"- Pipeline stages: {stages}.",
        f"- Serves only configs whose model type is {code(port.model_type)}"
        + (" and for which these hold; others are served by what vLLM has for them:" if port.checks else "."),
        *(f"  - {code(c.expression)} is {code(repr(c.value))}: {prose(c.reason)}" for c in port.checks),
    ]
    return "\n".join(["## Limits", "", *rows]) + "\n"


def _lines(change: Change) -> str:
    if change.source_lines is None:
        return ""
    first, last = change.source_lines
    return f"{first}" if first == last else f"{first}-{last}"
