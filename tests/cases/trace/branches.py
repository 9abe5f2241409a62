"""Branches that the config decides are followed its way, and each leaves what it looked at."""
# config: {"bias": true, "kinds": ["full", "local"], "window": null, "size": 2}
from torch import nn


class Layer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.window = config.window if config.kinds[layer_idx] == "local" else 4
        self.gain = config.window or 5

    def forward(self, x):
        if self.window is not None and self.gain > 2:
            x = x * self.window
        return x + 1


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.size)])
        self.config = config

    def forward(self, input_ids):
        x = input_ids
        if self.config.bias:
            x = x + 1
        for layer in self.layers:
            x = layer(x)
        return x
