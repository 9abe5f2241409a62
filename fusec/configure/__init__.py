"""The second stage: the configuration as the model class would see it."""

from fusec.configure.resolve import resolve_config
from fusec.configure.types import Config

__all__ = ["Config", "resolve_config"]
