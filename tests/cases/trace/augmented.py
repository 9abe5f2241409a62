"""An augmented assignment to the only name of a value; lists grow in place."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        x = input_ids * 2
        x += 1
        x *= x
        names = kept = [1]
        names += [2, 3]
        n = len(kept)
        n **= 2
        return x - n
