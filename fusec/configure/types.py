"""The configuration as the model class would see it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Config:
    """Every attribute that a model class can read from its config object.

    ``values`` holds fields, class attributes, evaluated properties and keys of
    ``config.json`` that the class does not declare, after ``__post_init__`` and rope
    standardisation; nested configs are :class:`Config` again. Where layers have values of
    their own, ``per_layer_config`` is a tuple of one Config per layer and the attributes that
    differ are absent here, as reading them raises; else ``per_layer_config`` is absent. ``slow_path`` says why the
    class had to be imported instead of interpreted, ``None`` if it was not.
    """

    cls: str
    module: str
    values: Mapping[str, Any]
    attribute_map: Mapping[str, str]
    slow_path: str | None = None

    def canonical(self, name: str) -> str:
        """The attribute behind ``name`` once ``attribute_map`` is applied."""
        return self.attribute_map.get(name, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.canonical(name) in self.values

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute's value, or ``default`` where the config has none of that name."""
        return self.values.get(self.canonical(name), default)

    def __getitem__(self, name: str) -> Any:
        return self.values[self.canonical(name)]
