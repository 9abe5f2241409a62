"""Casts by method, by dtype and by another tensor; float32 islands; a cast is a node of its own."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5))

    def forward(self, input_ids):
        x = input_ids.to(self.weight.dtype)
        wide = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        halved = (x * torch.rsqrt(wide + 1e-6)).type_as(x)
        whole = (halved * 8).to(dtype=torch.int64)
        return whole.float() * self.weight.to(x.device)
