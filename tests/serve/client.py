"""A process that imports the engine once and forks for each job of :mod:`tests.serve.jobs`."""

from __future__ import annotations

import itertools
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fusec.verify.harness import activate
from fusec.verify.harness.server import Server

ROOT = Path(__file__).resolve().parents[2]


class JobFailed(Exception):
    """What a job raised, as ``Class: message``; ``log`` is all that its processes said."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class Engines(Server):
    """Runs jobs with a port active, or none, in turn."""

    def __init__(self, work: Path) -> None:
        self.kind, self.work = "jobs", work
        self.log = work / "server.log"
        self._greeting: dict[str, Any] | None = None
        self._numbers = itertools.count()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "VLLM_PLUGINS": "",
            "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",  # forked workers wait for it to pass
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.serve.jobs"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=work,
                text=True, bufsize=1,
            )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def do(self, task: str, port: Path | None = None, timeout: float = 240, **facts: Any) -> dict[str, Any]:
        """What the task gave back, with its ``log``. ``port`` is the package to serve with. Raises JobFailed."""
        self.ready(120)
        work = self.work / f"{task}-{next(self._numbers)}"
        work.mkdir()
        environment = {}
        if port is not None:
            environment = activate.environment(activate.read_plugin(port), work, str(ROOT))
        job = {"name": task, "task": task, "work": str(work), "timeout": timeout, "environment": environment, **facts}
        answer = self.run(job)
        log = (work / f"{task}.log").read_text(encoding="utf-8", errors="replace")
        if "error" in answer:
            raise JobFailed(answer["error"], log)
        return {**answer, "log": log, "work": work}
