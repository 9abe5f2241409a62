"""Configs of families whose original is in transformers, at real sizes, that the hand-written port serves."""

from typing import Any

FAMILIES: dict[str, dict[str, Any]] = {
    # scaled rotary frequencies, an untied head, biases on every attention projection
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": True,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": False,
    },
    # q and k norms, a stated head size, a tied head
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True},
    # biases on q, k and v alone; the window on half of the layers
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 4096,
        "max_window_layers": 16,
    },
    # a window on every layer
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096},
    # scales on the embedding, the residual, the attention and the logits
    "granite": {
        "architectures": ["GraniteForCausalLM"],
        "model_type": "granite",
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.1,
        "logits_scaling": 8.0,
    },
}
