"""A process that imports the heavy libraries once and forks for each job, and its client.

Imports take longer than the jobs. A job that crashes takes only its fork along. Jobs and answers are JSON, one a
line; a job names itself (``name``), the folder that it works in (``work``), its ``timeout`` in seconds and the
``environment`` it wants.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

LOG_TAIL = 40


class NoAnswer(Exception):
    """The server process died or is too slow; the text says which, ``detail`` holds the end of its log."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


# ---- the server's side ---------------------------------------------------------------------------------------------


def serve(prepare: Callable[[], None], run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer jobs until standard input ends: ``prepare`` imports, ``run`` does one job in a fork."""
    replies: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print stays out of the answers
    try:
        prepare()
    except Exception as error:
        traceback.print_exc()
        replies.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return
    gc.freeze()  # a fork's collections would walk, and so copy, all that was imported
    replies.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        replies.write(json.dumps(_answer(json.loads(line), run)) + "\n")
    os._exit(0)  # nothing here needs the seconds that the libraries take to take themselves down


def _answer(job: dict[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    work = Path(job["work"])
    log, result = work / f"{job['name']}.log", work / f"{job['name']}.json"
    result.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _child(job, run, log, result)
    ended = _wait(pid, job["timeout"])
    if result.is_file():
        answer: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    else:
        answer = {"error": "the process died" if ended else f"no answer within {job['timeout']:.0f} s"}
    if "error" in answer:
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        answer["log"] = text.splitlines()[-LOG_TAIL:]
    return answer


def _child(job: dict[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]], log: Path, result: Path) -> None:
    """In the fork: its own process group, log, environment and path; one job; out without the parent's clean-up."""
    os.setsid()
    _die_with_parent()
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(job["environment"])
    # What PYTHONPATH does for the processes that this one starts, for this one.
    sys.path[:0] = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    try:
        answer = run(job)
    except BaseException as error:
        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(answer), encoding="utf-8")
    partial.rename(result)
    sys.stdout.flush()
    sys.stderr.flush()
    import multiprocessing

    for process in multiprocessing.active_children():
        process.terminate()
    for process in multiprocessing.active_children():
        process.join(timeout=5)
    os._exit(0)


def _die_with_parent() -> None:
    """Have the kernel end this process when the server is ended; where there is no such call, it runs to its end."""
    import ctypes

    set_parent_death_signal = 1
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def _wait(pid: int, timeout: float) -> bool:
    """Whether the fork ended by itself within ``timeout`` seconds; it is ended with its workers if not."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


# ---- the client's side ---------------------------------------------------------------------------------------------


class Server:
    """A server process of one kind (see ``__main__``), started at once and ready when :meth:`ready` returns."""

    def __init__(self, kind: str, environment: Mapping[str, str], work: Path) -> None:
        self.kind = kind
        self.log = work / f"{kind}-server.log"
        self._greeting: dict[str, Any] | None = None
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", str(__package__), kind],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=dict(environment), cwd=work,
                text=True, bufsize=1,
            )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _next(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise NoAnswer(f"no answer within {timeout:.0f} s", self._tail()) from None
        if not line:
            raise NoAnswer("the process died", self._tail())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL:])

    def ready(self, timeout: float) -> None:
        """Wait until the imports are done; raises :class:`NoAnswer` where they fail."""
        if self._greeting is None:
            self._greeting = self._next(timeout)
        if "error" in self._greeting:
            raise NoAnswer(self._greeting["error"], self._tail())

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """One job, and its answer: what it returned, or ``error`` and the end of its ``log``."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise NoAnswer("the process died", self._tail()) from None
        return self._next(job["timeout"] + 60)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
