"""A conditional expression on the values of a tensor, behind a name and a not."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        large = input_ids.amax(-1) > 2
        return input_ids if not large else -input_ids
