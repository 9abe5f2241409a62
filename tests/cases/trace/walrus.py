"""An assignment inside an expression."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        if (n := len("four")) > 3 and (x := input_ids * n) is not None:
            return x + n
        return input_ids
