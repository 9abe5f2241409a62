"""Counts the operations per decoder layer in the graph that the engine's compile decorator hands to its backend.

The graph is taken at the engine's default settings, before inductor sees it. The weights do not matter and are dummies.
"""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

# Who serves the model: the engine's own class, its transformers backend, or a port installed as a plugin.
Server = Literal["native", "backend", "port"]

# Nodes of the graph that multiply by a weight, by a part of the function's name.
MATMULS = {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "einsum", "onednn_mm", "weight_packed_linear"}
# Where a process that traced leaves its answer, in the model's folder.
ANSWER = "counts.json"
# Namespaces of the operators that the engine registers.
ENGINE_OPERATORS = ("vllm", "vllm_ir", "_C", "_moe_C")


@dataclass(frozen=True)
class LayerCounts:
    """What one more decoder layer adds to the graph: matmuls, the engine's other operators, and all nodes that compute.

    `functions` has the count of each function by name; `model_class` is the class that the engine ran, by full name.
    """

    matmuls: int
    engine_operators: int
    nodes: int
    functions: dict[str, int]
    model_class: str


def count_per_layer(
    model: Path, server: Server, *, site: Path | None = None, layers: int = 2, kernels: bool = False
) -> LayerCounts:
    """What layer number `layers` (from 0) adds to the graph of `model`, a folder with `config.json`.

    `site` is a folder of installed packages, for a port that is not installed in this environment. By default the
    engine leaves rotary, norms and activations to inductor, so the graph has them spelled out; with `kernels` it is
    told to call its own kernels, and each that this platform has is one node. Starts the engine twice, in two
    processes.
    """
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    less, more = _trace([_with_layers(config, n) for n in (layers, layers + 1)], server, site, kernels)
    functions = {
        name: more["functions"].get(name, 0) - less["functions"].get(name, 0)
        for name in sorted(more["functions"] | less["functions"])
        if more["functions"].get(name) != less["functions"].get(name)
    }
    matmuls = {name: n for name, n in functions.items() if MATMULS & set(name.split("."))}
    operators = {name: n for name, n in functions.items() if name.split(".")[0] in ENGINE_OPERATORS}
    return LayerCounts(
        matmuls=sum(matmuls.values()),
        engine_operators=sum(n for name, n in operators.items() if name not in matmuls),
        nodes=sum(functions.values()),
        functions=functions,
        model_class=more["model_class"],
    )


def _with_layers(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """`config` with that many layers; what it lists per layer starts over where it ends."""
    per_layer = {
        key: (value * layers)[:layers]
        for key, value in config.items()
        if isinstance(value, list) and len(value) == config["num_hidden_layers"] and key != "architectures"
    }
    return {**config, **per_layer, "num_hidden_layers": layers}


def _trace(configs: list[dict[str, Any]], server: Server, site: Path | None, kernels: bool) -> list[dict[str, Any]]:
    """Per config, `functions` (name to count) of the graph and the `model_class` that the engine ran."""
    # Nothing compiled ahead or before: it would be loaded instead of traced.
    environment = os.environ | {"VLLM_USE_AOT_COMPILE": "0", "VLLM_DISABLE_COMPILE_CACHE": "1"}
    environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if site is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), environment.get("PYTHONPATH")]))
    if server != "port":
        environment["VLLM_PLUGINS"] = ""
    with tempfile.TemporaryDirectory() as folder:
        models = [Path(folder) / str(number) for number, _ in enumerate(configs)]
        for path, config in zip(models, configs, strict=True):
            path.mkdir()
            (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        model_impl = "transformers" if server == "backend" else "vllm"
        command = [sys.executable, __file__, model_impl, "all" if kernels else "", *map(str, models)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        if run.returncode != 0:
            raise RuntimeError(f"the engine did not start:\n{run.stderr[-4000:]}")
        return [json.loads((path / ANSWER).read_text(encoding="utf-8")) for path in models]


def _name(node: Any) -> str | None:
    """`namespace.function` of a node that computes, or None for one that only carries values."""
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    if node.op != "call_function" or node.target is operator.getitem:
        return None
    target = node.target
    module = str(target.__module__).removeprefix("torch._ops.")
    return f"{module}.{target.__name__}"


def _serve_and_record(model: str, model_impl: str, custom_ops: list[str]) -> None:
    """Start the engine with a backend that records the graphs and runs them as they are."""
    from vllm import LLM, SamplingParams
    from vllm.config import CompilationConfig

    graphs: list[Counter[str]] = []

    def record(graph: Any, inputs: Any) -> Any:
        graphs.append(Counter(name for node in graph.graph.nodes if (name := _name(node))))
        return graph.forward

    CompilationConfig.init_backend = lambda self, *args, **kwargs: record
    llm = LLM(
        model=model,
        model_impl=model_impl,
        load_format="dummy",
        skip_tokenizer_init=True,
        max_model_len=64,
        compilation_config={"custom_ops": custom_ops},
    )
    llm.generate({"prompt_token_ids": [1, 2, 3]}, SamplingParams(max_tokens=2, detokenize=False), use_tqdm=False)
    model_class = type(llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model())
    counts = {
        "functions": max(graphs, key=lambda graph: graph.total()),
        "model_class": f"{model_class.__module__}.{model_class.__qualname__}",
    }
    (Path(model) / ANSWER).write_text(json.dumps(counts), encoding="utf-8")


def _main(model_impl: str, custom_ops: str, *models: str) -> None:
    import vllm  # noqa: F401 - takes seconds, so once, before the fork

    for model in models:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _serve_and_record(model, model_impl, custom_ops.split())
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
