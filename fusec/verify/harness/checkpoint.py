"""Writes a tiny random checkpoint with the original class: large norm weights and biases, logits neither flat nor
saturated.

Small random weights hide faults: a dropped bias of zeros, a norm weight of ones, flat logits. Every parameter is
drawn so that losing it shows, and the output head is scaled so that the logits have a standard deviation near
:data:`LOGIT_STD`. Weights are drawn as bfloat16 values and stored as float32, so that a bfloat16 run has the same
weights and shows its arithmetic alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .shrink import shrink

LOGIT_STD = 2.0
# A head tied to the embedding changes the input too, so scaling it is repeated until it settles.
SCALING_ROUNDS = 6


class NoOriginal(Exception):
    """The original cannot be run here; the text says why."""


def load_config(folder: Path, trust_remote_code: bool) -> Any:
    """The config of a checkpoint folder as transformers sees it."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)


@dataclass(frozen=True)
class Code:
    """Where the original's code is, if not in the installed transformers, and whether it may run.

    ``folder`` holds the checkpoint's own Python files; ``source`` is a modeling file and its dotted module name.
    """

    trusted: bool
    folder: Path | None = None
    source: tuple[Path, str] | None = None

    def __post_init__(self) -> None:
        if not self.trusted and (self.folder is not None or self.source is not None):
            raise NoOriginal("it is not the installed transformers' own code, and running it was not allowed")


def original_class(config: Any, checkpoint: Path, code: Code) -> Any:
    """The original class: from the source given, from transformers by ``architectures``, or the checkpoint's own.

    Raises :class:`NoOriginal` where there is none.
    """
    import transformers

    names = getattr(config, "architectures", None) or ["(none is named)"]
    if code.source is not None:
        return getattr(_module(*code.source), names[0])
    if code.folder is not None:
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        remote = (getattr(config, "auto_map", None) or {}).get("AutoModelForCausalLM")
        if remote is None:
            raise NoOriginal("the checkpoint's config names no class of its own (auto_map)")
        return get_class_from_dynamic_module(remote, str(checkpoint))
    if not hasattr(transformers, names[0]):
        raise NoOriginal(f"the installed transformers has no class {names[0]}")
    return getattr(transformers, names[0])


def _module(file: Path, name: str) -> Any:
    """Run a modeling file as the module of that name, so that its relative imports find what they found."""
    importlib.import_module(name.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise NoOriginal(f"{file.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _copy_code(origin: Path | None, folder: Path) -> None:
    for file in sorted(origin.glob("*.py")) if origin else ():
        shutil.copy(file, folder / file.name)


def write_tiny(config: Mapping[str, Any], folder: Path, prompts: list[list[int]], *, seed: int, code: Code) -> None:
    """Write ``config.json`` and ``model.safetensors`` of a tiny random model of ``config``'s family to ``folder``."""
    full = folder.parent / "full"
    for place, content in ((full, dict(config)), (folder, None)):
        place.mkdir(parents=True)
        _copy_code(code.folder, place)
        if content is None:  # shrunk with every default of the config class filled in
            content = shrink(load_config(full, code.trusted).to_dict())
            content["architectures"] = config.get("architectures") or content.get("architectures")
        if code.folder is None:
            content.pop("auto_map", None)  # the library's own class serves, whatever else the checkpoint offers
        (place / "config.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    tiny = load_config(folder, code.trusted)
    tiny._attn_implementation = "eager"
    model = original_class(tiny, folder, code)(tiny).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        draw_weights(model, generator)
        scale_logits(model, prompts)
    auto_map = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("auto_map")
    model.save_pretrained(folder)
    if auto_map:  # saving rewrites it for classes that it does not know
        saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps({**saved, "auto_map": auto_map}, indent=1), encoding="utf-8")


def draw_weights(model: nn.Module, generator: torch.Generator) -> None:
    """Fill every parameter, and every buffer that a checkpoint stores, so that losing it would show.

    What a class itself starts a vector with tells how it is used: ones for a norm's weight, zeros for a bias or for a
    weight to which the norm adds one.
    """

    def normal(like: torch.Tensor, std: float) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator) * std

    def uniform(like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator) * (high - low) + low

    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        stored = dict(module.named_buffers(recurse=False))
        own.update({key: value for key, value in stored.items() if key not in module._non_persistent_buffers_set})
        for key, value in sorted(own.items()):
            if value is None or not value.is_floating_point():
                continue
            if isinstance(module, nn.Embedding):
                fresh = normal(value, 1.0)
            elif value.dim() >= 2:
                fresh = normal(value, value.shape[-1] ** -0.5)
            elif "bias" in key:
                fresh = normal(value, 0.5 if key == "bias" else 0.1)
            elif bool((value == 1).all()):
                fresh = uniform(value, 0.5, 1.5)
            elif bool((value == 0).all()):
                fresh = uniform(value, -0.5, 0.5)
            else:
                fresh = value + normal(value, 0.1)
            value.copy_(fresh.to(torch.bfloat16))
    if hasattr(model, "tie_weights"):
        model.tie_weights()


def scale_logits(model: Any, prompts: list[list[int]]) -> None:
    """Scale the output head so that the logits over ``prompts`` have a standard deviation near :data:`LOGIT_STD`."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        return
    for _ in range(SCALING_ROUNDS):
        logits = [model(torch.tensor([prompt]), use_cache=False).logits.float() for prompt in prompts]
        std = torch.cat([row.flatten(0, 1) for row in logits]).std(dim=-1).mean().item()
        if abs(std / LOGIT_STD - 1) < 0.1:
            return
        for parameter in head.parameters(recurse=False):
            parameter.copy_((parameter * (LOGIT_STD / std)).to(torch.bfloat16))
