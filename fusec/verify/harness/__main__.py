"""The processes that a proof starts: ``python -m <this package> reference`` and ``... engine``."""

from __future__ import annotations

import sys


def main(kind: str) -> None:
    """Serve jobs of one kind until standard input ends."""
    from .server import serve

    if kind == "reference":
        from . import reference

        serve(reference.prepare, reference.run)
    elif kind == "engine":
        from . import engine

        serve(engine.prepare, engine.run)
    else:
        raise SystemExit(f"unknown kind of process: {kind}")


# The engine's spawned workers import this module again under another name.
if __name__ == "__main__":
    main(sys.argv[1])
