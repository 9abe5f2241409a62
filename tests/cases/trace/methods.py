"""staticmethod, classmethod, property with a setter, and decorators that change nothing."""
import torch
from torch import nn


class Model(nn.Module):
    unit = 3

    def __init__(self, config):
        super().__init__()
        self._gain = 1
        self.gain = 2

    @property
    def gain(self):
        return self._gain

    @gain.setter
    def gain(self, value):
        self._gain = value * 10

    @staticmethod
    def twice(x):
        return x * 2

    @classmethod
    def units(cls, n):
        return cls.unit * n

    @torch.no_grad()
    def forward(self, input_ids):
        return self.twice(input_ids) * self.gain + Model.units(4)
