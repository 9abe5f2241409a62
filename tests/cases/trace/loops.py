"""for and while with else, break and continue; enumerate and zip; the counter outlives its loop."""
# config: {"num_layers": 3}
from torch import nn


def find(items, wanted):
    for i, item in enumerate(items, start=1):
        if item == wanted:
            break
    else:
        return -1
    return i


def halve(n):
    steps = 0
    while n > 1:
        steps += 1
        if n % 2:
            n = 3 * n + 1
            continue
        n //= 2
    else:
        steps += 100
    return steps


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, 1, bias=False) for _ in range(config.num_layers)])

    def forward(self, input_ids):
        x = input_ids[..., None].float()
        for layer, gain in zip(self.layers[1:], (2, 3)):
            x = layer(x) * gain
        return x + find("abc", "b") * 10 + find("abc", "z") + halve(6) + gain
