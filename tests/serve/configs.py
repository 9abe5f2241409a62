"""Small configs of the six dense families, in sizes that the engine's CPU kernels take and that two ranks can share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
}

# What sets the families apart under ranks and stages: kv heads per rank and less, biases, windows, rotary on some
# layers, heads that do not fill the hidden size, a head of its own or the embedding's.
FAMILIES: dict[str, Config] = {
    "llama": {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 8},
    "qwen2": {
        "num_key_value_heads": 4,
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "qwen3": {"num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True},
    "smollm3": {
        "num_key_value_heads": 1,
        "use_sliding_window": True,
        "sliding_window": 8,
        "no_rope_layers": [1, 0, 1, 0],
        "tie_word_embeddings": True,
    },
    "seed_oss": {"num_key_value_heads": 2, "head_dim": 32, "attention_bias": True, "attention_out_bias": True},
}


def config(family: str, **changes: Any) -> Config:
    """``config.json`` of a model of ``family`` with 4 layers, 4 heads and a hidden size of 128."""
    return {
        "architectures": [ARCHITECTURES[family]],
        "model_type": family,
        "vocab_size": 384,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,
        "dtype": "float32",
        **changes,
    }


def folder_with(folder: Path, content: Config) -> Path:
    """``folder``, made with ``content`` as its ``config.json``."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder
