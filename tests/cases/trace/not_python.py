"""A syntax error."""
from torch import nn


class Model(nn.Module)
    pass
