"""Writes the package of a port: files, plugin entry point, lock file, README."""

from fusec.emit.lock import Lock, SourceRecord, read_lock
from fusec.emit.package import EmittedPackage, PackageFiles, emit_package, package_files
from fusec.emit.write import check_destination

__all__ = [
    "EmittedPackage",
    "Lock",
    "PackageFiles",
    "SourceRecord",
    "check_destination",
    "emit_package",
    "package_files",
    "read_lock",
]
