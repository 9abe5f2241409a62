"""Run as a process: what AutoConfig makes of each configuration on standard input, as JSON lines.

Input: a JSON list of ``config.json`` contents, each with the tests' own Python files for its folder
under ``__files__`` if it has any. Output: per line ``{"config": ...}`` in fusec's
encoding or ``{"error": "..."}``. Only AutoConfig and the attribute dump are used.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from fusec.configure.dump import dump
from fusec.configure.plain import encode


def main() -> None:
    from transformers import AutoConfig

    for values in json.load(sys.stdin):
        code = values.pop("__files__", {})
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**code, "config.json": json.dumps(values)}.items():
                Path(folder, name).write_text(text)
            try:
                answer = {"config": encode(dump(AutoConfig.from_pretrained(folder, trust_remote_code=bool(code))))}
            except Exception as error:  # whatever the library raises is its verdict
                answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
