"""Makes a package that is not installed visible to an engine as an installed one: importable, with its entry points.

Python finds entry points in ``*.dist-info`` folders on its path. Such a folder is written to a temporary place, and
both it and the package's folder go on ``PYTHONPATH``, which the engine's worker processes inherit however they start.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

GROUP = "vllm.general_plugins"
PLATFORM_GROUP = "vllm.platform_plugins"


@dataclass(frozen=True)
class Plugin:
    """A port's package: its folder, its distribution's name and version, its entry points (name and target)."""

    folder: Path
    name: str
    version: str
    entry_points: tuple[tuple[str, str], ...]

    @property
    def packages(self) -> frozenset[str]:
        """The import packages that the entry points lie in."""
        return frozenset(value.partition(":")[0].partition(".")[0] for _, value in self.entry_points)


def read_plugin(folder: Path) -> Plugin:
    """Read the package's ``pyproject.toml``. Raises ``ValueError`` with a sentence if it declares no plugin."""
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    points = project.get("entry-points", {}).get(GROUP, {})
    if not points:
        raise ValueError(f"{file} declares no entry point in the group {GROUP}")
    return Plugin(folder, str(project["name"]), str(project.get("version", "0")), tuple(sorted(points.items())))


def environment(plugin: Plugin, temporary: Path, path: str) -> dict[str, str]:
    """The settings with which engines load this plugin and no other.

    ``temporary`` receives the metadata; ``path`` is what ``PYTHONPATH`` is without the plugin.
    """
    place = temporary / "site"
    info = place / f"{plugin.name.replace('-', '_')}-{plugin.version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {plugin.name}\nVersion: {plugin.version}\n", encoding="utf-8"
    )
    lines = "".join(f"{name} = {value}\n" for name, value in plugin.entry_points)
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}", encoding="utf-8")
    # A platform that is itself a plugin stays usable.
    allowed = [name for name, _ in plugin.entry_points] + [point.name for point in entry_points(group=PLATFORM_GROUP)]
    return {
        "PYTHONPATH": os.pathsep.join(part for part in (str(plugin.folder), str(place), path) if part),
        "VLLM_PLUGINS": ",".join(allowed),
    }
