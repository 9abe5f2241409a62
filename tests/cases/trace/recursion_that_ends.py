"""A function that calls itself, and stops."""
from torch import nn


def power(x, n):
    return x if n == 1 else x * power(x, n - 1)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        return power(input_ids, 4)
