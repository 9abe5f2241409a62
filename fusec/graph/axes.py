"""Sizes as products of named atoms.

A size such as ``config.num_attention_heads * self.head_dim`` is kept as a monomial over
*atoms* (``config.num_attention_heads``, ``config.head_dim``) next to its value, so that
two axes are the same when they are made of the same symbols, not when two sizes happen to
have one value. Division cancels atoms where it can and makes an opaque atom where it
cannot; ``-1`` in a ``view`` is a quotient of monomials. Factors are fractions, so
that the two halves of a head join to a whole head again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

BATCH, SEQ = "batch", "seq"
TOKEN_ATOMS = frozenset({BATCH, SEQ})


@dataclass(frozen=True, slots=True)
class Size:
    """``value`` is the size for the config at hand; ``factor * prod(atoms)`` says what it is made of."""

    value: int
    factor: Fraction = Fraction(1)
    atoms: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [*([] if self.factor == 1 and self.atoms else [str(self.factor)]), *self.atoms]
        return "*".join(parts)

    @property
    def is_token(self) -> bool:
        return any(a in TOKEN_ATOMS for a in self.atoms)

    def __mul__(self, other: Size) -> Size:
        return Size(self.value * other.value, self.factor * other.factor, tuple(sorted(self.atoms + other.atoms)))

    def divide(self, other: Size) -> Size | None:
        """The exact quotient, or ``None`` where the monomials do not divide."""
        if other.factor == 0:
            return None
        left = Counter(self.atoms)
        left.subtract(other.atoms)
        if any(n < 0 for n in left.values()):
            return None
        if other.value == 0 or self.value % other.value:
            return None
        return Size(self.value // other.value, self.factor / other.factor, tuple(sorted(left.elements())))

    def same(self, other: Size) -> bool:
        """Made of the same symbols."""
        return self.factor == other.factor and self.atoms == other.atoms


ONE = Size(1)


def constant(value: int) -> Size:
    """A size that is written as a number in the source."""
    return Size(value, Fraction(value))


def atom(name: str, value: int) -> Size:
    """A size that is one symbol."""
    return Size(value, Fraction(1), (name,))


def product(sizes: Iterable[Size]) -> Size:
    return reduce(lambda a, b: a * b, sizes, ONE)
