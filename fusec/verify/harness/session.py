"""The processes of a proof: one with transformers for the original, one with vLLM for the port."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .facts import Failure
from .server import Server

NEEDED = ("torch", "transformers", "safetensors", "vllm")


class Session:
    """The two server processes of a proof. One session serves any number of proofs, of any packages, in turn."""

    def __init__(self, work: Path, threads: int = 1) -> None:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise Failure("environment", f"verification needs {', '.join(missing)}, which this environment lacks")
        root = Path(__file__).resolve().parents[len(str(__package__).split("."))]
        settings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(part for part in (str(root), os.environ.get("PYTHONPATH", "")) if part),
            "HF_HUB_OFFLINE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler is watched, and a layer-by-layer run hooks in
            "VLLM_NO_USAGE_STATS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_MODULES_CACHE": str(work / "modules"),  # where transformers copies a checkpoint's own code
            "OMP_NUM_THREADS": str(threads),
        }
        settings.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        settings.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        self.path = settings["PYTHONPATH"]
        # Both import at the same time.
        self.original = Server("reference", settings, work)
        self.engine = Server("engine", settings, work)

    def close(self) -> None:
        self.original.close()
        self.engine.close()


@contextmanager
def session(threads: int = 1) -> Iterator[Session]:
    """A :class:`Session` with a folder of its own, closed at the end."""
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        opened = Session(Path(folder), threads)
        try:
            yield opened
        finally:
            opened.close()
