"""Text from outside, made safe to print on a terminal.

Model names, config strings and source lines can hold anything, escape sequences that
rewrite the screen included. They are printed as :class:`rich.text.Text` (never parsed as
markup), after their control characters are spelled out.
"""

from __future__ import annotations

import re
import sys
import unicodedata

from rich.console import Console
from rich.text import Text

# Cc and Cf hold terminal controls and the bidirectional overrides; Cs is not encodable.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def printable(text: str) -> str:
    """``text`` with each control character but tabs as its escape (``\\x1b``)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if c != "\t" and unicodedata.category(c) in _UNPRINTABLE else c for c in text)


def code_lines(text: str) -> list[str]:
    """The lines of Python source as its parser counts them (``str.splitlines`` also splits at form feeds)."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines[:-1] if lines[-1] == "" else lines


def styled(*parts: str | tuple[str, str]) -> Text:
    """A line of ``text`` and ``(text, style)`` parts, each made printable."""
    line = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        line.append("\n".join(printable(piece) for piece in text.split("\n")), style or None)
    return line


def console(*, stderr: bool = False) -> Console:
    """A console that prints what it is given: no markup, no emoji codes, and no wrapping into a pipe.

    Colour follows rich: off where the stream is not a terminal or ``NO_COLOR`` is set.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 160
    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True, width=width)
