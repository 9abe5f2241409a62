"""A forward that changes a weight."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, input_ids):
        gain = self.gain
        gain *= 2
        return input_ids * gain
