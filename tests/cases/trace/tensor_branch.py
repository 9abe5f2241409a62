"""A branch on the values of a tensor."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        x = input_ids * 2
        if x.sum() > 4:
            x = x + 1
        return x
