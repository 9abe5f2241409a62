"""getattr with a default and hasattr, on keys that are there, absent, and null."""
# config: {"gain": 3, "shift": null}
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gain = getattr(config, "gain", 1)
        self.bias = getattr(config, "bias", 5)
        self.shift = config.shift or 7
        if hasattr(config, "bias"):
            self.bias = 0
        if getattr(config, "absent", None) is not None:
            self.bias = 0

    def forward(self, input_ids):
        return input_ids * self.gain + self.bias + self.shift
