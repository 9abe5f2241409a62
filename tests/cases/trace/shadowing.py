"""Local names hide builtins and globals; the class body is no scope for its methods."""
from torch import nn

scale = 2


class Model(nn.Module):
    scale = 5
    doubled = scale * 2

    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        len = lambda x: 7
        sum = input_ids * scale
        return sum + len([]) + self.doubled
