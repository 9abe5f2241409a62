"""A call with a keyword that the function does not take."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def scaled(self, x, gain):
        return x * gain

    def forward(self, input_ids):
        return self.scaled(input_ids, scale=2)
