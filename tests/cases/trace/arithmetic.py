"""Python's arithmetic on plain numbers: signs of // and %, chained comparison, in, and, or, bit operations."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        numbers = [-7 // 2, -7 % 3, 2**10, 7 ^ 2, 1 << 4, ~5, int(True), round(2.5), divmod(-7, 2)[1]]
        flags = [1 < 2 <= 2 < 3, 3 in (1, 2), "a" not in "bc", 0 or "x", 1 and 0, None is None, [] == []]
        known = [n for n in flags if n]
        return input_ids * sum(numbers) + len(known)
