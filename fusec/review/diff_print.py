"""Three ways to print a diff: by class (default), as one unified diff that ``patch`` takes, as counts."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fusec.review.diff import MODULE, ClassDiff, Hunk, PortDiff
from fusec.review.text import styled

_MARK_STYLES = {"-": "red", "+": "green", " ": ""}


def class_lines(diff: PortDiff) -> Iterator[Text]:
    """Class by class; each hunk under the patterns that made it and what they did."""
    yield styled(("--- ", "red"), diff.source_name)
    yield styled(("+++ ", "green"), diff.port_name)
    for part in diff.classes:
        yield styled("\n", (f"== {_title(part)}", "bold"))
        for hunk in part.hunks:
            yield styled("\n", (_position(hunk), "cyan"), ("  " + (_patterns(hunk) or "no pattern"), "bold cyan"))
            for label in hunk.labels:
                yield styled((f"   {label}: {label.what}", "dim"))
            yield from _marked(hunk)


def unified_text(diff: PortDiff) -> str:
    """A unified diff that ``patch`` takes, byte for byte; each hunk's heading names its patterns."""
    if not diff.unified:
        return ""
    lines = [f"--- {diff.source_name}", f"+++ {diff.port_name}"]
    for hunk in diff.unified:
        lines.append(f"{_position(hunk)} {_patterns(hunk)}".rstrip())
        lines += [line.mark + line.text for line in hunk.lines]
    return "\n".join(lines) + "\n"


def unified_lines(diff: PortDiff) -> Iterator[Text]:
    """The same for a terminal: coloured, and nothing in it can move the cursor."""
    for line in unified_text(diff).split("\n")[:-1]:
        style = "bold" if line.startswith(("--- ", "+++ ")) else _MARK_STYLES.get(line[:1], "cyan")
        yield styled((line, style))


def stat_lines(diff: PortDiff) -> Iterator[Text]:
    """One line per class: lines removed and added, and the patterns behind them; then the sum."""
    width = max((len(_title(part)) for part in diff.classes), default=0)
    for part in diff.classes:
        patterns = dict.fromkeys(pattern for hunk in part.hunks for pattern in hunk.patterns)
        line = styled(
            f" {_title(part).ljust(width)} | ",
            (f"{part.added:>4}+", "green"), " ", (f"{part.removed:>4}-", "red"), "  ", ", ".join(patterns),
        )  # fmt: skip
        line.rstrip()
        yield line
    removed, added = sum(part.removed for part in diff.classes), sum(part.added for part in diff.classes)
    yield styled(f" {len(diff.classes)} classes and functions changed, {added} lines added, {removed} removed")


def _title(part: ClassDiff) -> str:
    name = "(module level)" if part.name == MODULE else part.name
    return name + {"source": "  (dropped)", "port": "  (new)", None: ""}[part.only]


def _patterns(hunk: Hunk) -> str:
    return ", ".join(dict.fromkeys(map(str, hunk.labels)))


def _position(hunk: Hunk) -> str:
    source = [line.source for line in hunk.lines if line.source is not None]
    port = [line.port for line in hunk.lines if line.port is not None]
    # A side without lines is at line 0, as in unified diffs.
    return f"@@ -{source[0] if source else 0},{len(source)} +{port[0] if port else 0},{len(port)} @@"


def _marked(hunk: Hunk) -> Iterator[Text]:
    for line in hunk.lines:
        yield styled((f"{line.mark}{line.text}".rstrip() or " ", _MARK_STYLES[line.mark]))
