"""Loading of weights that leaves no parameter unfilled, and a head that is tied as transformers would tie it.

The engine's own check for unfilled parameters passes over every linear, embedding and head layer, and over the parts of
a packed parameter.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.logger import init_logger
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.model_executor.models.utils import AutoWeightsLoader, PPMissingLayer

logger = init_logger(f"vllm.plugins.{__name__}")

Weights = Iterable[tuple[str, torch.Tensor]]

# What the engine's loader passes over without a word where the model has no place for it.
PASSED_OVER = (".bias", "inv_freq", "cos_cached", "sin_cached")


class CompleteLoader:
    """Loads a model's weights; the first time, all of them. Made at the end of the model's `__init__`.

    Where the config ties head and embedding, a checkpoint overrules it by holding two different tensors, and if it
    holds one of the two, that one is both. The engine finds out beforehand whether a safetensors checkpoint has a head,
    and then sets `tie_word_embeddings` to False; it ties again when the two turn out equal.
    """

    def __init__(
        self, vllm_config: VllmConfig, *, embedding: str = "model.embed_tokens", head: str = "lm_head"
    ) -> None:
        self.embedding, self.head = embedding, head
        self.untied_by_checkpoint: bool = vllm_config.model_config.word_embeddings_untied_by_checkpoint
        # The first call carries the whole checkpoint, unless the weights come later and from elsewhere (a trainer).
        self.expect_all = vllm_config.load_config.load_format not in ("dummy", "tensorizer", "sharded_state")

    def load_weights(self, model: nn.Module, weights: Weights) -> set[str]:
        """Fill `model` from `weights` and return the names of the parameters that were filled.

        Raises:
            ValueError: the first call leaves a parameter, or a part of a packed one, unfilled.
        """
        expected = self._checkpoint_names(model)
        seen: set[str] = set()
        extra: list[str] = []
        weights = _noting(weights, seen)
        if model.config.tie_word_embeddings and not isinstance(model.get_submodule(self.head), PPMissingLayer):
            weights = self._for_tied_head(model, weights, extra)
        loaded: set[str] = AutoWeightsLoader(model).load_weights(weights, mapper=model.hf_to_vllm_mapper) | set(extra)
        missing = expected - seen
        if self.untied_by_checkpoint and missing == {f"{self.embedding}.weight"}:
            head = model.get_submodule(self.head)
            if not isinstance(head, PPMissingLayer):
                model.get_submodule(self.embedding).weight.data.copy_(head.weight)
                loaded.add(missing.pop())
        if missing and self.expect_all:
            raise ValueError(f"the checkpoint has no {', '.join(sorted(missing))}")
        self.expect_all = False
        skipped = sorted(name for name in seen if _is_passed_over(model, name))
        if skipped:
            logger.info("Left out, since this model has no parameter of that name: %s", ", ".join(skipped))
        return loaded

    def _for_tied_head(
        self, model: nn.Module, weights: Weights, extra: list[str]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass the weights on, and see to it that a tied head is what it should be."""
        embedding, head = model.get_submodule(self.embedding), model.get_submodule(self.head)
        embedding_name, head_name = f"{self.embedding}.weight", f"{self.head}.weight"
        if head.weight.is_meta:
            # The engine reloads in place, and prepares each layer's kernel weights from what that layer was given.
            for name, tensor in weights:
                if name == embedding_name:
                    yield head_name, tensor
                if name != head_name:
                    yield name, tensor
            return
        own: nn.Parameter | None = None
        for name, tensor in weights:
            if name == head_name and self.expect_all:  # in a checkpoint that the engine cannot look into beforehand
                own = nn.Parameter(torch.empty_like(embedding.weight), requires_grad=False)
                own.__dict__.update(embedding.weight.__dict__, weight_loader=head.weight_loader)
                own.weight_loader(own, tensor)
            else:
                yield name, tensor
        if own is not None and not torch.equal(own, embedding.weight):
            logger.warning("tie_word_embeddings=true, but the checkpoint's %s differs and is used", head_name)
            head.weight = own
            model.config.tie_word_embeddings = False  # as the engine says it
            extra.append(head_name)

    def _checkpoint_names(self, model: nn.Module) -> set[str]:
        """What a checkpoint calls the parameters of those layers of `model` that are not quantized."""
        names: set[str] = set()
        for prefix, module in model.named_modules():
            quant_method = getattr(module, "quant_method", None)
            if not isinstance(quant_method, None | UnquantizedLinearMethod | UnquantizedEmbeddingMethod):
                continue
            parent, dot, own = prefix.rpartition(".")
            for part in model.packed_modules_mapping.get(own, [own]):
                names |= {f"{parent}{dot}{part}.{name}" for name, _ in module.named_parameters(recurse=False)}
        if model.config.tie_word_embeddings:
            names.discard(f"{self.head}.weight")
        return names


def _noting(weights: Weights, seen: set[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in weights:
        seen.add(name)
        yield name, tensor


def _is_passed_over(model: nn.Module, name: str) -> bool:
    """Whether the checkpoint's tensor `name` is none that `model` or another pipeline stage has."""
    if not name.endswith(PASSED_OVER):
        return False
    *path, leaf = name.split(".")
    module: nn.Module | None = model
    for part in path:
        packed = next((own for own, parts in model.packed_modules_mapping.items() if part in parts), part)
        module = getattr(module, packed, None)
        if isinstance(module, PPMissingLayer):
            return False
        if module is None:
            return True
    return getattr(module, leaf, None) is None
