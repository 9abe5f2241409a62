"""The number of tokens may size a view, and what is computed from it remembers so: such a number cannot stand in a port."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        batch, length = input_ids.shape
        x = input_ids.view(batch * length, 1).view(batch, -1, 1)
        steps = [0] * length
        return x + len(steps)
