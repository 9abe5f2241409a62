"""A branch on the number of tokens cannot be followed one way for all inputs."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        if input_ids.shape[1] > 4:
            return input_ids * 2
        return input_ids
