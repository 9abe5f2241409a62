"""try, except by type, else, finally, re-raise, and the order in which they run."""
from torch import nn


class Own(ValueError):
    pass


def outcome(what):
    seen = []
    try:
        seen.append(1)
        if what == "index":
            [][3]
        elif what == "key":
            {}["x"]
        elif what == "raise":
            raise TypeError("no")
        seen.append(2)
    except (IndexError, KeyError) as error:
        seen.append(3)
    except TypeError:
        seen.append(4)
    else:
        seen.append(5)
    finally:
        seen.append(6)
    return int("".join(str(s) for s in seen))


def outer():
    try:
        try:
            raise ValueError("inner")
        except KeyError:
            return 0
    except ValueError:
        return 9


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()

    def forward(self, input_ids):
        return input_ids + [outcome("index"), outcome("key"), outcome("raise"), outcome(""), outer()][-1] * outcome("raise")
