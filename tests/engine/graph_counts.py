"""Counts the operations per decoder layer in the graph that the engine's compile decorator hands to its backend.

The graph is taken at the engine's default settings, before inductor sees it. The weights do not matter and are dummies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

# Who serves the model: the engine's own class, its transformers backend, or a port installed as a plugin.
Server = Literal["native", "backend", "port"]

# Nodes of the graph that multiply by a weight, by the last part of the function's name.
MATMULS = {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "onednn_mm", "weight_packed_linear"}
# Namespaces of the operators that the engine registers.
ENGINE_OPERATORS = ("vllm", "vllm_ir", "_C", "_moe_C")


@dataclass(frozen=True)
class LayerCounts:
    """What one more decoder layer adds to the graph: matmuls, the engine's own operators, and all nodes that compute.

    `functions` has the count of each function by name; `model_class` is the class that the engine ran, by full name.
    """

    matmuls: int
    engine_operators: int
    nodes: int
    functions: dict[str, int]
    model_class: str


def count_per_layer(model: Path, server: Server, *, site: Path | None = None, layers: int = 2) -> LayerCounts:
    """What layer number `layers` (from 0) adds to the graph of `model`, a folder with `config.json`.

    `site` is a folder of installed packages, for a port that is not installed in this environment. Runs the engine twice,
    each time in a process of its own.
    """
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    graphs = [_trace(_with_layers(config, n), server, site) for n in (layers, layers + 1)]
    less, more = (Counter(graph["functions"]) for graph in graphs)
    functions = {name: more[name] - less[name] for name in sorted(more | less) if more[name] != less[name]}
    return LayerCounts(
        matmuls=sum(n for name, n in functions.items() if _is_matmul(name)),
        engine_operators=sum(n for name, n in functions.items() if name.split(".")[0] in ENGINE_OPERATORS),
        nodes=sum(functions.values()),
        functions=functions,
        model_class=graphs[0]["model_class"],
    )


def _is_matmul(name: str) -> bool:
    # An overload (`mm.default`) is the last part where there is one.
    return bool(MATMULS & set(name.split(".")[-2:]))


def _with_layers(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """`config` with that many layers; what it lists per layer starts over where it ends."""
    per_layer = {
        key: (value * layers)[:layers]
        for key, value in config.items()
        if isinstance(value, list) and len(value) == config["num_hidden_layers"] and key != "architectures"
    }
    return {**config, **per_layer, "num_hidden_layers": layers}


def _trace(config: dict[str, Any], server: Server, site: Path | None) -> dict[str, Any]:
    """`functions` (name to count) and `model_class` of one engine start."""
    # Nothing compiled ahead or before: it would be loaded instead of traced.
    environment = os.environ | {"VLLM_USE_AOT_COMPILE": "0", "VLLM_DISABLE_COMPILE_CACHE": "1"}
    if site is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), environment.get("PYTHONPATH")]))
    if server != "port":
        environment["VLLM_PLUGINS"] = ""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        answer = Path(folder) / "counts.json"
        command = [sys.executable, __file__, folder, "transformers" if server == "backend" else "vllm", str(answer)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        if run.returncode != 0:
            raise RuntimeError(f"the engine did not start:\n{run.stderr[-4000:]}")
        counts: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return counts


def _name(node: Any) -> str | None:
    """`namespace.operator` of a node that computes, or None for one that only carries values."""
    target = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    if node.op != "call_function":
        return None
    name: str = target.name() if hasattr(target, "name") and callable(target.name) else ""
    if name:  # an operator of torch.ops: `namespace::operator`
        return name.replace("::", ".")
    if target.__name__ == "getitem":
        return None
    return f"{target.__module__ or ''}.{target.__name__}".lstrip(".")


def _serve_and_record(model: str, model_impl: str, answer: Path) -> None:
    """Start the engine with a backend that records the graphs and runs them as they are."""
    from vllm import LLM, SamplingParams
    from vllm.config import CompilationConfig

    graphs: list[Counter[str]] = []

    def record(graph: Any, inputs: Any) -> Any:
        graphs.append(Counter(name for node in graph.graph.nodes if (name := _name(node))))
        return graph.forward

    CompilationConfig.init_backend = lambda self, *args, **kwargs: record  # type: ignore[method-assign,assignment]
    llm = LLM(model=model, model_impl=model_impl, load_format="dummy", skip_tokenizer_init=True, max_model_len=64)
    llm.generate({"prompt_token_ids": [1, 2, 3]}, SamplingParams(max_tokens=2, detokenize=False), use_tqdm=False)
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    model_class = type(runner.get_model())
    largest = max(graphs, key=lambda graph: graph.total())
    counts = {"functions": largest, "model_class": f"{model_class.__module__}.{model_class.__qualname__}"}
    answer.write_text(json.dumps(counts), encoding="utf-8")


if __name__ == "__main__":
    _serve_and_record(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
