"""A loop as long as the data say."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        total = input_ids
        for row in input_ids:
            total = total + row
        return total
