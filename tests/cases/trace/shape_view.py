"""A view of too few elements."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        return input_ids.view(-1, 7)
