"""A config key that is not there."""
# config: {"hidden_size": 8}
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.proj = nn.Linear(config.hidden_size, config.n_inner)

    def forward(self, input_ids):
        return self.proj(input_ids)
