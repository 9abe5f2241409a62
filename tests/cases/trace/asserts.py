"""An assertion that fails."""
# config: {"hidden_size": 8}
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.hidden_size > 8, "too small"

    def forward(self, input_ids):
        return input_ids
