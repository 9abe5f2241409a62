"""The slow path: construct a configuration in another process that imports transformers.

Only classes of the installed transformers come here; this process never imports them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fusec.configure.plain import decode
from fusec.configure.types import Config
from fusec.diagnostics import Diagnostic, EnvironmentProblem, refuse

_SECONDS = 120
_ROOT = str(Path(__file__).resolve().parents[2])
_RUN = "from fusec.configure.dump import main; main()"


def import_config(module: str, cls: str, values: dict[str, Any], why: str) -> Config:
    """The configuration that ``module.cls(**values)`` makes; ``why`` goes to ``Config.slow_path``.

    Raises FusecError FUS202 where the class rejects the values."""
    if not module.startswith("transformers."):
        raise ValueError(f"{module} is not transformers' own")
    request = json.dumps({"module": module, "cls": cls, "values": values})
    try:
        done = subprocess.run(
            # -P keeps the working directory, which may be a checkpoint, off the other process's import path.
            [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {_ROOT!r}); {_RUN}"],
            input=request,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout.rpartition("\n")[2] if done.returncode == 0 else "null")
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        answer = None
    if answer is None:
        raise EnvironmentProblem(
            Diagnostic(
                "FUS004",
                f"{cls} needs transformers to be imported ({why}), and that failed.",
                hint="Check that `python -c 'import transformers'` works.",
            )
        )
    if "error" in answer:
        raise refuse("FUS202", f"{cls} rejects the configuration: {answer['error']}")
    config = decode(answer["config"], why)
    assert isinstance(config, Config)
    return config
