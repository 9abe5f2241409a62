"""What the tests ask of engines: each function is one job, and runs in a fork of a process that imported the engine."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fusec.verify.harness import engine
from fusec.verify.harness.server import serve

Job = dict[str, Any]
PROMPTS = ((5, 9, 33, 78, 150, 2, 7, 7, 90, 11, 301, 44, 18, 3, 77, 250, 19), (1, 2, 3, 200, 40))


def start(job: Job) -> Any:
    """An engine for the job's ``model`` with its ``options``."""
    import torch
    from vllm import LLM

    options = {
        "dtype": "float32",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "max_model_len": 128,
        "max_num_seqs": 8,
        "max_logprobs": -1,
        "enable_prefix_caching": False,
        "disable_log_stats": True,
        "seed": 0,
        **job.get("options", {}),
    }
    # Eager means eager: the sampler has a helper that is compiled even then.
    torch._dynamo.config.disable = options["enforce_eager"]
    return LLM(model=job["model"], **options)


def served_by(model: Any) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


def keep_log_probabilities(job: Job, llm: Any, name: str) -> None:
    """``<name>.npz``: per prompt, float32 ``[positions, vocabulary]`` after each token and along four greedy steps."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0.0, max_tokens=4, min_tokens=4, ignore_eos=True, prompt_logprobs=-1, logprobs=-1, detokenize=False
    )
    outputs = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in PROMPTS], sampling, use_tqdm=False)
    size = llm.model_config.get_vocab_size()
    arrays = {}
    for number, output in enumerate(outputs):
        rows = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
        arrays[str(number)] = np.array([[row[token].logprob for token in range(size)] for row in rows], np.float32)
    np.savez(Path(job["work"]) / f"{name}.npz", allow_pickle=False, **arrays)


def generate(job: Job) -> Job:
    llm = start(job)
    answer = {"served_by": llm.apply_model(served_by)}
    keep_log_probabilities(job, llm, "logprobs")
    return answer


def tiny(job: Job) -> Job:
    """Write a random checkpoint of ``config`` to ``folder``."""
    from fusec.verify.harness.checkpoint import Code, write_tiny

    prompts = [list(prompt) for prompt in PROMPTS]
    write_tiny(job["config"], Path(job["folder"]), prompts, seed=job["seed"], code=Code(trusted=False))
    return {}


# ---- real weights ---------------------------------------------------------------------------------------------------


def texts(job: Job) -> Job:
    """The greedy text that the engine gives for each of ``prompts``, through the checkpoint's tokenizer."""
    from vllm import SamplingParams

    llm = start(job)
    sampling = SamplingParams(temperature=0.0, max_tokens=job["new_tokens"])
    outputs = llm.generate(job["prompts"], sampling, use_tqdm=False)
    return {"served_by": llm.apply_model(served_by), "texts": [output.outputs[0].text for output in outputs]}


def original_texts(job: Job) -> Job:
    """The same from transformers, and the smallest lead that a chosen token had over the next, in log-probability."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval()
    said, leads = [], []
    for prompt in job["prompts"]:
        inputs = tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            out = model.generate(
                **inputs, do_sample=False, max_new_tokens=job["new_tokens"], output_logits=True,
                return_dict_in_generate=True,
            )  # fmt: skip
        said.append(tokenizer.decode(out.sequences[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
        best = torch.log_softmax(torch.cat(out.logits).float(), -1).topk(2).values
        leads.append(float((best[:, 0] - best[:, 1]).min()))
    return {"texts": said, "smallest_lead": min(leads)}


# ---- pipeline stages ------------------------------------------------------------------------------------------------


def attach_recorders(model: Any) -> dict[str, Any]:
    """In a worker: note what embedding, layers and last norm give from now on; answer which parts it has."""
    import os

    from vllm.distributed import get_pp_group
    from vllm.model_executor.models.utils import PPMissingLayer

    model.noted = []

    def hook(name: str, module: Any, inputs: Any, output: Any) -> None:
        tensors = output if isinstance(output, tuple) else (output,)
        model.noted.append((name, [tensor.float().numpy().copy() for tensor in tensors if tensor is not None]))

    body = model.model
    places = {"embed_tokens": body.embed_tokens, "norm": body.norm}
    places |= {f"layers.{index}": layer for index, layer in enumerate(body.layers)}
    here = {name: module for name, module in places.items() if not isinstance(module, PPMissingLayer)}
    for name, module in here.items():
        module.register_forward_hook(functools.partial(hook, name))
    has_head = not isinstance(model.lm_head, PPMissingLayer)
    return {
        "pid": os.getpid(),
        "stage": get_pp_group().rank_in_group,
        "parts": [*sorted(here), *(["lm_head"] if has_head else [])],
        "tied": has_head and getattr(body.embed_tokens, "weight", None) is model.lm_head.weight,
    }


def keep_notes(model: Any, work: str) -> None:
    """In a worker: write ``stage<rank>.npz`` with ``<call>|<place>|<0 hidden states, 1 residual>``."""
    from vllm.distributed import get_pp_group

    calls: dict[str, int] = {}
    arrays = {}
    for name, values in model.noted:
        call = calls[name] = calls.get(name, -1) + 1
        arrays |= {f"{call}|{name}|{part}": value for part, value in enumerate(values)}
    np.savez(Path(work) / f"stage{get_pp_group().rank_in_group}.npz", allow_pickle=False, **arrays)


def stages(job: Job) -> Job:
    """Generate over the job's number of pipeline stages, with every stage's hidden states kept."""
    llm = start(job)
    if job["options"].get("pipeline_parallel_size", 1) > 1:
        llm.collective_rpc(engine.make_stage_inputs)
    answer = {"served_by": llm.apply_model(served_by), "stages": llm.apply_model(attach_recorders)}
    keep_log_probabilities(job, llm, "logprobs")
    llm.apply_model(functools.partial(keep_notes, work=job["work"]))
    return answer


# ---- loading --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def one_rank(work: str) -> Iterator[None]:
    """The groups that a model is built in, of one process."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{work}/rendezvous", 0, "gloo")
        initialize_model_parallel(1, 1)
    yield


def load(job: Job) -> Job:
    """What the engine's loader says to each of ``folders``: an error, or which parameters were left as they were."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import utils, weight_tying
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    from vllm.plugins import load_general_plugins
    from vllm.utils.torch_utils import set_default_torch_dtype

    load_general_plugins()
    answers: dict[str, Any] = {}
    with one_rank(job["work"]):
        for name, folder in job["folders"].items():
            args = EngineArgs(model=folder, dtype="float32", skip_tokenizer_init=True, enforce_eager=True)
            config = args.create_engine_config()
            loader = DefaultModelLoader(config.load_config)
            with set_default_torch_dtype(torch.float32), set_current_vllm_config(config):
                model = utils.initialize_model(vllm_config=config, model_config=config.model_config)
            for parameter in model.parameters():
                parameter.data.fill_(float("nan"))
            try:
                with set_default_torch_dtype(torch.float32), set_current_vllm_config(config):
                    loader.load_weights(model, config.model_config)
                    weight_tying.maybe_retie_word_embeddings(model, config.model_config)
            except Exception as error:
                answers[name] = {"error": f"{type(error).__name__}: {error}", "served_by": served_by(model)}
                continue
            unfilled = [key for key, value in model.named_parameters() if bool(value.isnan().any())]
            tied = model.lm_head.weight is model.model.embed_tokens.weight
            answers[name] = {"unfilled": unfilled, "tied": tied, "served_by": served_by(model)}
    return {"answers": answers}


def reload(job: Job) -> Job:
    """Start with one checkpoint, go on with others: from a folder, and from tensors that a trainer sends."""
    from safetensors.torch import load_file

    llm = start(job)
    answer = {"served_by": llm.apply_model(served_by)}
    keep_log_probabilities(job, llm, "first")
    for name, folder in job["then"].items():
        if name.startswith("sent"):
            sent = list(load_file(Path(folder) / "model.safetensors").items())
            llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(sent)})
        else:
            llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        keep_log_probabilities(job, llm, name)
    return answer


TASKS = {f.__name__: f for f in (tiny, generate, texts, original_texts, stages, load, reload)}


def prepare() -> None:
    """Import what every engine needs, and have its workers fork, as the engine does on other devices than the CPU: a
    forked worker need not import everything again."""
    engine.prepare()
    from vllm.v1.executor import multiproc_executor

    multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")


def run(job: Job) -> Job:
    """A job of this module, or one that a proof sends, which names no task."""
    return TASKS[job["task"]](job) if "task" in job else engine.run(job)


if __name__ == "__main__":
    serve(prepare, run)
