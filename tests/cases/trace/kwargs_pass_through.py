"""Keywords travel through two modules that do not name them."""
from torch import nn


class Inner(nn.Module):
    def forward(self, x, gain=1, **kwargs):
        return x * gain + kwargs.get("shift", 0) + len(kwargs)


class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x, **kwargs):
        return self.inner(x, **kwargs)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.middle = Middle()

    def forward(self, input_ids, **kwargs):
        return self.middle(input_ids, gain=2, shift=3, other=None, **kwargs)
