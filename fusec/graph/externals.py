"""What names outside the modeling file mean: torch modules, activations, decorators, masks.

Data only. Names are dotted paths as the file's own imports spell them; transformers moves
helpers between its modules from release to release, so its names are matched by their
last part.
"""

from __future__ import annotations

# Decorators that do not change what a forward computes at inference, by last part of their path.
TRANSPARENT_DECORATORS = frozenset(
    "no_grad inference_mode auto_docstring can_return_tuple capture_outputs merge_with_config_defaults "
    "check_model_inputs use_kernel_forward_from_hub use_kernel_func_from_hub use_kernelized_func deprecate_kwarg "
    "add_start_docstrings add_start_docstrings_to_model_forward replace_return_docstrings add_code_sample_docstrings "
    "wraps lru_cache cache disable overload abstractmethod maybe_autocast use_experts_implementation "
    "force_accumulate_grad_in_fp32 compile_compatible_method_lru_cache".split()
)
# Decorators whose effect is left to the pattern that matches the function.
RECORDED_DECORATORS = frozenset({"dynamic_rope_update"})

# torch modules: constructor parameters (name or name=default) in order.
MODULES: dict[str, str] = {
    "Linear": "in_features out_features bias=True device=None dtype=None",
    "Embedding": "num_embeddings embedding_dim padding_idx=None",
    "Dropout": "p=0.5 inplace=False",
    "Identity": "",
    "LayerNorm": "normalized_shape eps=1e-05 elementwise_affine=True bias=True device=None dtype=None",
    "RMSNorm": "normalized_shape eps=None elementwise_affine=True device=None dtype=None",
    "ModuleList": "modules=None",
    "ModuleDict": "modules=None",
    "Sequential": "*modules",
    "ParameterList": "values=None",
    "SiLU": "inplace=False",
    "GELU": "approximate='none'",
    "ReLU": "inplace=False",
    "Tanh": "",
    "Sigmoid": "",
    "Softplus": "beta=1.0 threshold=20.0",
}
ACTIVATION_MODULES = {
    "SiLU": "silu",
    "ReLU": "relu",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
}
# Functions that are an activation by name.
ACTIVATION_FUNCTIONS = {
    "torch.nn.functional.silu": "silu",
    "torch.nn.functional.relu": "relu",
    "torch.relu": "relu",
    "torch.sigmoid": "sigmoid",
    "torch.nn.functional.sigmoid": "sigmoid",
    "torch.tanh": "tanh",
    "torch.nn.functional.tanh": "tanh",
    "torch.nn.functional.softplus": "softplus",
    "Tensor.sigmoid": "sigmoid",
    "Tensor.tanh": "tanh",
    "Tensor.relu": "relu",
}
# Mask builders by last part -> the kind of visibility they describe.
MASKS = {
    "create_causal_mask": "full",
    "create_sliding_window_causal_mask": "sliding",
    "create_chunked_causal_mask": "chunked",
}
# Context managers that change nothing at inference.
CONTEXTS = frozenset("no_grad autocast maybe_autocast inference_mode nullcontext device_mesh enable_grad".split())
# Base classes that behave as a plain torch module.
MODULE_BASES = frozenset("Module PreTrainedModel GradientCheckpointingLayer GenerationMixin".split())
# Keyword arguments of torch calls that place a tensor but do not change its values.
PLACEMENT_KEYWORDS = frozenset(
    "device non_blocking copy memory_format requires_grad layout pin_memory sparse generator".split()
)
KEYWORD_ALIASES = {
    "axis": "dim",
    "split_size": "sizes",
    "split_size_or_sections": "sizes",
    "split_sizes": "sizes",
    "fill_value": "value",
    "unbiased": "correction",
    "self": "input",
    "exponent": "other",
    "a_min": "min",
    "a_max": "max",
    "tensors": "tensors",
}
DTYPE_ALIASES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "bool": "bool",
}
DTYPES = frozenset("float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool complex64 model".split())
# Keywords of the attention interface, and what becomes of each.
ATTENTION_KEYWORDS: dict[str, str] = {
    "scaling": "scale",
    "sliding_window": "window",
    "softcap": "softcap",
    "dropout": "off at inference",
    "is_causal": "causal",
    "position_ids": "the engine's own",
    "cache_position": "the engine's own",
    "use_cache": "the engine's own",
    "output_attentions": "not served",
    "output_hidden_states": "not served",
    "return_dict": "not served",
}
