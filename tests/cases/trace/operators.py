"""Python's operators on tensors, numbers on either side, and promotion of types."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(5))

    def forward(self, input_ids):
        x = 1 - input_ids
        y = 2 ** (x.abs() % 3)
        z = 10 // (1 + input_ids)
        ratio = x / 4
        near = ratio > -0.5
        picked = torch.where(ratio < 0, -ratio, ratio * self.gain)
        return (picked + y.to(picked.dtype) * z) @ torch.ones(5, 2) + near.sum()
