"""A config that the source refuses itself."""
# config: {"heads": 3, "hidden_size": 8}
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        if config.hidden_size % config.heads != 0:
            raise ValueError(f"{config.hidden_size} is not divisible by {config.heads}")

    def forward(self, input_ids):
        return input_ids
