"""Text from outside, quoted for the format it is written into."""

from __future__ import annotations

import re


def toml(text: str) -> str:
    """A TOML basic string in ASCII; a lone surrogate, which TOML cannot hold, becomes ``?``."""
    return f'"{"".join(map(_toml_char, text))}"'


def _toml_char(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if " " <= char <= "~":
        return char
    if "\ud800" <= char <= "\udfff":
        return "?"
    return f"\\U{ord(char):08x}"


def python_string(text: str) -> str:
    """A Python string literal in ASCII, in the quotes that formatters choose."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    body = "".join(f"\\{char}" if char == quote else char if char in "'\"" else ascii(char)[1:-1] for char in text)
    return f"{quote}{body}{quote}"


def plain(text: str) -> str:
    """``text`` on one line of visible characters: everything else becomes a Python-style escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def code(text: str) -> str:
    """A Markdown code span that ``text`` cannot leave, usable inside a table cell."""
    body = plain(text)
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{body.replace('|', chr(92) + '|')}{pad}{fence}"


def prose(text: str) -> str:
    """``text`` as Markdown prose without markup: what could open a tag, a link, a table cell or emphasis is escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&!])", r"\\\1", plain(text))
