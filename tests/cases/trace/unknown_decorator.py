"""A decorator that fusec does not know may change what the function computes."""
from torch import nn


def negate(function):
    def wrapped(*args):
        return -function(*args)

    return wrapped


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    @negate
    def forward(self, input_ids):
        return input_ids + 1
