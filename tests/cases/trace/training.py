"""What only training does is off."""
from torch import nn


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, input_ids, labels=None, **kwargs):
        x = input_ids.float()
        if self.training and kwargs.get("noise"):
            x = x + torch.rand_like(x)
        x = nn.functional.dropout(self.dropout(x), p=0.1, training=self.training)
        if labels is not None:
            x = loss(x, labels)
        return x * 2
