"""``make demo``: a model is converted, reviewed and verified, and a port of a real checkpoint says a sentence.

Everything it makes lies in ``out/demo``. The last screen sums it up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "out" / "demo"
CHECKPOINT = ROOT / ".cache" / "smollm2"
MODEL = "examples/tinymodel"
PORT = "out/demo/tinymodel-vllm"
SENTENCE_PORT = "out/demo/smollm2-vllm"
PROMPT = "What is a compiler? Answer in one sentence."

console = Console(highlight=False, emoji=False, markup=False)


def step(title: str, *command: str, env: dict[str, str] | None = None) -> str:
    """Run one command, say how long it took, give what it printed; stop the demo where it fails."""
    start = time.perf_counter()
    with console.status(title):
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"NO_COLOR": "1"} | (env or {}),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nfailed with status {done.returncode}:\n{done.stdout}{done.stderr}")
    console.print(f"  {title}  ({time.perf_counter() - start:.1f} s)")
    return done.stdout


def fusec(title: str, *arguments: str) -> str:
    return step(title, sys.executable, "-m", "fusec", *arguments)


def excerpt(summary: str, *titles: str) -> str:
    """The paragraphs of a summary that begin with ``titles``."""
    return "\n\n".join(part for part in summary.split("\n\n") if part.startswith(titles))


def sentence() -> dict[str, str]:
    """Convert the small real checkpoint, install its port, and let vLLM answer with it."""
    step("writing the real checkpoint", sys.executable, "examples/smollm2.py", str(CHECKPOINT))
    fusec("converting it", "convert", str(CHECKPOINT), "-o", SENTENCE_PORT, "--force")
    site = WORK / "site"
    shutil.rmtree(site, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation")
    step("installing the port", *pip, "--target", str(site), SENTENCE_PORT)
    answer = step(
        "serving it with vLLM", sys.executable, "examples/generate.py", str(CHECKPOINT), PROMPT,
        env={"PYTHONPATH": str(site)},
    )  # fmt: skip
    said: dict[str, str] = json.loads(answer.splitlines()[-1])
    return said


def main() -> None:
    console.print(Rule("fusec demo: about a minute on two cores"))
    WORK.mkdir(parents=True, exist_ok=True)
    summary = fusec("converting examples/tinymodel", "convert", MODEL, "-o", PORT, "--force")
    difference = fusec("comparing it with its source", "diff", PORT, "--class", "TinyModelMLP")
    table = fusec("verifying it in the engine", "verify", PORT, "--trust-remote-code")
    said = sentence()

    def show(title: str, what: Text | Syntax, note: str) -> None:
        console.print()
        console.print(Panel(what, title=title, title_align="left", subtitle=note, subtitle_align="left"))

    show(
        "1  A modeling file was compiled into a vLLM package",
        Text(excerpt(summary, "TinyModelForCausalLM  ", "TinyModelAttention", "TinyModelMLP", "Parallel plan")),
        f"fusec convert {MODEL} -o {PORT}",
    )
    show(
        "2  Every change has a reason: one class of the diff",
        Syntax(difference, "diff", background_color="default", word_wrap=True),
        f"fusec diff {PORT} --class TinyModelMLP",
    )
    show(
        "3  The port computes what the original computes",
        Text(table.rstrip()),
        f"fusec verify {PORT} --trust-remote-code",
    )
    show(
        "4  And it serves: a real checkpoint, converted, installed, asked",
        Text.assemble(
            ("asked     ", "dim"),
            PROMPT,
            ("\nanswered  ", "dim"),
            said["text"],
            ("\nby        ", "dim"),
            said["served_by"],
        ),
        f"pip install {SENTENCE_PORT}, then vLLM as usual",
    )
    console.print(
        f"\nThe packages are in {WORK.relative_to(ROOT)}. Next: fusec convert MODEL -o OUT, for a model of yours."
    )


if __name__ == "__main__":
    main()
