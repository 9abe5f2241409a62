"""Puts the Python source of vLLM's newest tested version into `.cache/`, where the symbol table is checked against it.

Run by the test itself; `python tests/target/fetch_engine_source.py [WHEEL]` does the same by
hand. The source is read, never installed or imported. The wheel is taken rather than the smaller sdist because
pip builds an sdist's metadata, which runs its build scripts; of the wheel only the `.py` files are kept.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "0.33.0"
CACHE = Path(__file__).resolve().parents[2] / ".cache"
# Any platform will do, the Python files are the same.
PLATFORM = "manylinux_2_28_x86_64"
TIMEOUT_S = 1200


class SourceMissing(Exception):
    """The source could not be fetched; the text is a sentence that says why."""


def engine_source(version: str = VERSION, wheel: Path | None = None) -> Path:
    """The folder `vllm` of that version's source, fetched (some 340 MB, once) if it is not there yet."""
    folder = CACHE / f"vllm-{version}-source"
    if not folder.is_dir():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            work = Path(temporary)
            unpack(wheel or download(version, work), work / "source")
            try:
                (work / "source").rename(folder)
            except OSError:  # another test process was faster
                if not folder.is_dir():
                    raise
    return folder / "vllm"


def download(version: str, into: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", f"--platform={PLATFORM}", f"--dest={into}", f"vllm=={version}",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SourceMissing(f"The wheel of vLLM {version} was not downloaded within {TIMEOUT_S} s.") from None
    wheels = list(into.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise SourceMissing(f"The source of vLLM {version}, which this test reads, could not be downloaded: {reason}")
    return wheels[0]


def unpack(wheel: Path, target: Path) -> None:
    """Write the Python files of the package `vllm` in ``wheel`` to ``target``."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("vllm/") and name.endswith(".py") and ".." not in Path(name).parts:
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)


if __name__ == "__main__":
    sys.stdout.write(f"{engine_source(wheel=Path(sys.argv[1]) if len(sys.argv) > 1 else None)}\n")
