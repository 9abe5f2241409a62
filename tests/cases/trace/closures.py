"""Closures see later assignments; a default keeps the value it had; nonlocal and global write through."""
from torch import nn

COUNT = 0


def counter(start):
    n = start

    def step(by=1):
        nonlocal n
        n += by
        return n

    return step


def count():
    global COUNT
    COUNT += 1
    return COUNT


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        step = counter(10)
        step()
        step(by=5)
        late = [lambda: i for i in range(3)]
        kept = [lambda i=i: i for i in range(3)]
        scale = 1
        scaled = lambda x: x * scale
        scale = 3
        count()
        return scaled(input_ids) + step() * 1000 + late[0]() * 100 + kept[0]() * 10 + count()
