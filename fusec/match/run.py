"""Runs the patterns over a traced model, in order."""

from __future__ import annotations

from fusec.match.context import Context
from fusec.match.unit import Matches, Pattern


def match(ctx: Context, patterns: tuple[Pattern, ...]) -> Matches:
    """All that the patterns find. Raises FusecError FUS4xx for a computation that no pattern may take."""
    matches = Matches()
    for pattern in sorted(patterns, key=lambda p: p.order):
        for unit in list(pattern.find(ctx, matches, pattern)):
            # what an earlier pattern took stays its own: a user's patterns come before the shipped ones of their role
            if not any(u.covers & unit.covers and u.pattern != unit.pattern for u in matches.of(unit.frame)):
                matches.add(unit)
    return matches
