"""A host read of a tensor."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        n = input_ids.sum().item()
        return input_ids * n
