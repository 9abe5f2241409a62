"""A keyword that may change what a known function computes."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        return torch.add(input_ids, input_ids, alpha=2)
