"""The algebra of sizes: whatever the config's numbers are, the monomials and the values agree."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fusec.graph.axes import ONE, Size, atom, constant, product
from fusec.graph.ops import ShapeProblem, broadcast, reshape

# Two symbols may well have one value: kv heads equal to heads, say.
VALUES = {"config.heads": 4, "config.kv_heads": 2, "config.groups": 2, "config.head_dim": 6, "config.one": 1, "seq": 5}

atoms = st.sampled_from([atom(name, value) for name, value in VALUES.items()])
numbers = st.integers(1, 6).map(constant)
sizes = st.lists(atoms | numbers, min_size=0, max_size=4).map(product)
shapes = st.lists(sizes, min_size=1, max_size=4).map(tuple)


def worth(size: Size) -> Fraction:
    """What the monomial comes to."""
    total = size.factor
    for name in size.atoms:
        total *= VALUES[name]
    return total


@given(sizes)
def test_value_and_monomial_agree(size: Size) -> None:
    assert worth(size) == size.value


@given(sizes, sizes, sizes)
def test_multiplication_is_that_of_numbers(a: Size, b: Size, c: Size) -> None:
    assert a * b == b * a
    assert (a * b) * c == a * (b * c)
    assert a * ONE == a
    assert worth(a * b) == (a * b).value == a.value * b.value


@given(sizes, sizes)
def test_division_undoes_multiplication(a: Size, b: Size) -> None:
    assert (a * b).divide(b) == a


@given(sizes, sizes)
def test_a_quotient_is_exact_or_none(a: Size, b: Size) -> None:
    quotient = a.divide(b)
    if quotient is None:
        return
    assert quotient * b == a
    assert worth(quotient) == quotient.value


def test_two_symbols_of_one_value_do_not_cancel() -> None:
    heads, kv_heads = atom("config.kv_heads", 2), atom("config.groups", 2)
    assert heads.divide(kv_heads) is None
    assert not heads.same(kv_heads)
    assert heads.divide(constant(2)) == Size(1, Fraction(1, 2), ("config.kv_heads",))


def test_the_halves_of_a_head_join_to_a_head() -> None:
    head = atom("config.head_dim", 6)
    half = head.divide(constant(2))
    assert half is not None
    assert half.value == 3
    assert half * constant(2) == head


@pytest.mark.parametrize("divisor", [constant(4), constant(0)])
def test_what_does_not_divide_is_none(divisor: Size) -> None:
    assert atom("config.head_dim", 6).divide(divisor) is None


@given(shapes, st.data())
def test_a_view_with_one_size_left_open_keeps_every_symbol(shape: tuple[Size, ...], data: st.DataObject) -> None:
    """Splitting axes apart and joining neighbours, with ``-1`` for one of them."""
    wanted: list[Size] = []
    for size in shape:
        if wanted and data.draw(st.booleans()):
            wanted[-1] = wanted[-1] * size
        else:
            wanted.append(size)
    # Sizes are passed as a source passes them: plain numbers where they have no symbol.
    asked: list[object] = list(wanted)
    open_axis = data.draw(st.integers(0, len(asked) - 1))
    asked[open_axis] = -1
    assert reshape(shape, asked) == tuple(wanted)


@given(shapes)
def test_a_view_of_everything_is_the_product(shape: tuple[Size, ...]) -> None:
    assert reshape(shape, [-1]) == (product(shape),)


@given(shapes, st.integers(1, 40))
def test_a_view_keeps_the_number_of_elements(shape: tuple[Size, ...], last: int) -> None:
    total = product(shape).value
    if total % last:
        with pytest.raises(ShapeProblem):
            reshape(shape, [-1, last])
        return
    assert product(reshape(shape, [-1, last])).value == total


@given(shapes, st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_a_view_of_another_number_of_elements_is_refused(shape: tuple[Size, ...], wanted: list[int]) -> None:
    assume(product(map(constant, wanted)).value != product(shape).value)
    with pytest.raises(ShapeProblem):
        reshape(shape, wanted)


def test_two_open_sizes_are_refused() -> None:
    with pytest.raises(ShapeProblem):
        reshape((constant(4),), [-1, -1])


@given(shapes, st.data())
def test_broadcasting_with_ones_gives_the_shape_back(shape: tuple[Size, ...], data: st.DataObject) -> None:
    ones = tuple(ONE if data.draw(st.booleans()) else size for size in shape)
    dropped = data.draw(st.integers(0, len(shape) - 1))
    assert broadcast(shape, ones[dropped:]) == shape
    assert broadcast(ones[dropped:], shape) == shape


@given(shapes, shapes)
def test_broadcasting_is_numpys(a: tuple[Size, ...], b: tuple[Size, ...]) -> None:
    import numpy as np

    plain = [tuple(size.value for size in shape) for shape in (a, b)]
    try:
        expected = np.broadcast_shapes(*plain)
    except ValueError:
        with pytest.raises(ShapeProblem):
            broadcast(a, b)
        return
    assert tuple(size.value for size in broadcast(a, b)) == expected
