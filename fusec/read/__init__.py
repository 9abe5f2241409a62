"""The first stage: a checkpoint's config, modeling source and tensor names, read and never run."""

from fusec.read.checkpoint import read_checkpoint
from fusec.read.library import OverlayLibrary, PackageLibrary, checkout_of, installed_library, parse, resolve_import
from fusec.read.types import Checkpoint, Library, Source, TensorSpec

__all__ = [
    "Checkpoint",
    "Library",
    "OverlayLibrary",
    "PackageLibrary",
    "Source",
    "TensorSpec",
    "checkout_of",
    "installed_library",
    "parse",
    "read_checkpoint",
    "resolve_import",
]
