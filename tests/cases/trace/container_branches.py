"""Config values inside of tuples, lists and dicts are compared as values."""
# config: {"heads": 4, "kv_heads": 2, "kind": "a"}
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.both = (config.heads, config.kv_heads) == (4, 2)
        self.listed = [config.kind, "b"] != ["a", "b"]
        self.within = (config.heads, 1) in [(4, 1), (2, 1)]
        self.named = {config.kind: 3}["a"]
        self.counts = {"heads": config.heads} == {"heads": 4}

    def forward(self, input_ids):
        x = input_ids * self.named
        if self.both and self.within and self.counts:
            x = x + 1
        if self.listed:
            x = x * 2
        return x
