"""In torch the second name sees the addition, too."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        x = input_ids * 2
        y = x
        x += 1
        return x + y
