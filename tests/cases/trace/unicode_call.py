"""Columns count characters, not bytes: two-byte letters stand before the call."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        größe, näher = "äöü", torch.linalg.svdvals(input_ids)
        return näher
