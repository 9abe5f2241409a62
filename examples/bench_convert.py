"""``make bench-convert``: how long ``fusec convert qwen3 -o OUT`` takes, and which stage takes it.

Wall time of the whole command, in a fresh process each time, median of five; then each
stage's share, as the command itself reports it. The rest is Python's start and imports.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 5
MODEL = sys.argv[1] if len(sys.argv) > 1 else "qwen3"


def once(out: Path) -> tuple[float, dict[str, float]]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fusec", "convert", MODEL, "-o", str(out), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"fusec convert {MODEL} failed:\n{done.stdout}{done.stderr}")
    return wall, json.loads(done.stdout)["timings"]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        runs = [once(Path(scratch) / str(number)) for number in range(RUNS)]
    walls = [wall for wall, _ in runs]
    wall, stages = sorted(runs, key=lambda run: run[0])[RUNS // 2]
    print(f"fusec convert {MODEL}: {statistics.median(walls):.2f} s, median of {RUNS}")
    print(f"  all runs: {', '.join(f'{value:.2f}' for value in walls)}")
    rest = wall - sum(stages.values())
    for stage, seconds in [*stages.items(), ("start", rest)]:
        print(f"  {stage:<10} {seconds:6.3f} s  {seconds / wall:6.1%}")


if __name__ == "__main__":
    main()
