"""What the first stage hands on: sources and checkpoints, as read, never imported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Source:
    """The text of one Python file.

    ``name`` is how a person knows it and holds no machine's path
    (``transformers/models/x/modeling_x.py``); ``module`` is its dotted name, from which
    relative imports resolve; ``origin`` says where it comes from (``transformers 5.19.0``,
    ``checkpoint``, ``file``).
    """

    name: str
    module: str
    text: str
    origin: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


class Library(Protocol):
    """Finds the source of a module by its dotted name without importing it."""

    version: str

    def find(self, module: str) -> Source | None: ...


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype (``"BF16"``, ``"F32"``...; ``None`` where only the name is known) of a tensor."""

    shape: tuple[int, ...] | None
    dtype: str | None


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as far as conversion needs it: config, modeling source, tensor names.

    ``model`` is what the user named; ``folder`` is set only where it is a local folder;
    ``config`` is ``config.json`` as read (for a model type: ``model_type`` and
    ``architectures`` alone, all else is the class's default); ``tensors`` is ``None``
    where no weights are at hand. ``config_class`` is the class in ``configuration`` that
    ``config`` belongs to.
    """

    model: str
    architecture: str
    model_type: str
    config: Mapping[str, Any]
    modeling: Source
    configuration: Source
    library: Library
    folder: Path | None = None
    revision: str | None = None
    remote_code: bool = False
    tensors: Mapping[str, TensorSpec] | None = None
    notes: tuple[str, ...] = field(default=())
    config_class: str = ""
