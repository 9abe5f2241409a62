"""An import of what is not installed fails, so the except arm runs; a helper that asks says no."""
import math

from torch import nn

try:
    from apex.normalization import FusedNorm
except ImportError:
    FusedNorm = None

try:
    import flash_attn_of_nowhere as fast
    HAVE = True
except ModuleNotFoundError:
    fast, HAVE = None, False
else:
    HAVE = "else"


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        if FusedNorm is not None or HAVE:
            raise NotImplementedError
        return input_ids * math.floor(math.pi)
