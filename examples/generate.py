"""``python examples/generate.py MODEL PROMPT``: vLLM's answer, and the class that gave it, as JSON on the last line."""

from __future__ import annotations

import json
import os
import sys

# Settings for a small CPU host, where the caller has none of its own.
for name, value in {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}.items():
    os.environ.setdefault(name, value)


def main(model: str, prompt: str) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(model, dtype="bfloat16", max_model_len=512, enforce_eager=True)
    served_by = llm.apply_model(lambda module: f"{type(module).__module__}.{type(module).__qualname__}")
    (output,) = llm.chat([{"role": "user", "content": prompt}], SamplingParams(temperature=0, max_tokens=48))
    print(json.dumps({"text": output.outputs[0].text.strip(), "served_by": served_by[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
