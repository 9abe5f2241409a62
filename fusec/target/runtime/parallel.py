"""Says why a tensor-parallel size cannot work, before a layer of the engine trips over it."""

from vllm.distributed import get_tensor_model_parallel_world_size


def check_tensor_parallel(*, split: dict[str, int], repeated: dict[str, int]) -> None:
    """Hold the engine's tensor-parallel size against what it has to deal out.

    Args:
        split: what each rank gets an equal share of, by name (heads, elements).
        repeated: what is shared out like that, or repeated where there are more ranks (key/value heads).

    Raises:
        ValueError: names the first that does not fit.
    """
    ranks = get_tensor_model_parallel_world_size()
    for name, number in (split | repeated).items():
        if number % ranks and not (name in repeated and number < ranks and ranks % number == 0):
            raise ValueError(f"tensor_parallel_size {ranks} cannot work: {number} {name} cannot be dealt out to it")
