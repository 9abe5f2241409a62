"""Formatted strings, string methods and dictionaries decide which attribute is read."""
# config: {"activation": "gelu_new", "sizes": {"inner": 6, "outer": 2}}
from torch import nn

KINDS = {"gelu_new": "smooth", "relu": "sharp"}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gain_smooth, self.gain_sharp = 3, 5
        self.kind = KINDS[config.activation.lower()]
        self.sizes = config.sizes

    def forward(self, input_ids):
        gain = getattr(self, f"gain_{self.kind}")
        words = "a,b,c".split(",")
        table = dict(zip(words, range(3)), d=9)
        table.setdefault("e", 4)
        size = self.sizes["inner"] - self.sizes.get("outer", 0) + self.sizes.get("none", 1)
        return input_ids * gain + table["c"] + table.pop("d") + len(table) + size
