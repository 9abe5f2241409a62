"""Assignment into a tensor."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        x = input_ids * 2
        x[:, 0] = 0
        return x
