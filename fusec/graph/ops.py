"""The table of tensor operations: one row per operation, all that the compiler knows of it.

A row has the canonical name, the parameters in positional order, a kind, the torch names
that mean it, the rule for output shapes and the numpy evaluator. Everything else in the
tracer is mechanism: an operation that is not in the table is a diagnostic.

Kinds: ``layout`` moves or selects elements without changing them; ``pointwise`` acts on
each element; ``cast`` changes the dtype only; ``reduce`` folds axes; ``matmul``
contracts; ``create`` makes a tensor from scalars; ``other`` is the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fusec.graph.axes import ONE, Size, atom, constant, product
from fusec.graph.interp import size_of
from fusec.graph.values import Sym, Tensor, deep_plain, plain

Kind = Literal["layout", "pointwise", "cast", "reduce", "matmul", "create", "other"]
Shape = tuple[Size, ...]


class ShapeProblem(Exception):
    """The operands' shapes do not fit the operation."""


@dataclass(frozen=True)
class Op:
    """A row of the table; ``shape`` maps the bound arguments to the output shape, or to a
    tuple of shapes for an operation with several outputs."""

    name: str
    kind: Kind
    params: tuple[str, ...]
    aliases: tuple[str, ...]
    shape: Callable[[dict[str, Any]], Any]
    evaluate: Callable[[dict[str, Any]], Any] | None = None
    dtype: Callable[[dict[str, Any]], str | None] | None = None
    commutes: bool = False


OPS: dict[str, Op] = {}
BY_ALIAS: dict[str, Op] = {}


def _op(
    name: str,
    kind: Kind,
    params: str,
    aliases: str,
    shape: Callable[[dict[str, Any]], Any],
    evaluate: Callable[[dict[str, Any]], Any] | None = None,
    dtype: Callable[[dict[str, Any]], str | None] | None = None,
    commutes: bool = False,
) -> None:
    row = Op(name, kind, tuple(params.split()), tuple(aliases.split()), shape, evaluate, dtype, commutes)
    OPS[name] = row
    for alias in row.aliases:
        BY_ALIAS[alias] = row


# ---------------------------------------------------------------------- shape rules


def _shape(value: Any) -> Shape:
    return value.shape if isinstance(value, Tensor) else ()


def _size(value: Any) -> Size:
    if isinstance(value, Size):
        return value
    size = size_of(value)
    if size is None:
        raise ShapeProblem(f"{plain(value)!r} is not a size")
    return size


def _axis(dim: Any, rank: int) -> int:
    d = int(plain(dim))
    if not -rank <= d < rank:
        raise ShapeProblem(f"dimension {d} is out of range for a tensor of {rank} dimensions")
    return d % rank


def broadcast(*shapes: Shape) -> Shape:
    """Numpy's rule; of two equal sizes the one with atoms wins."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Size] = []
    for i in range(1, rank + 1):
        dims = [s[-i] for s in shapes if len(s) >= i]
        best = ONE
        for d in dims:
            if d.value == 1:
                if best.value == 1 and d.atoms:
                    best = d
                continue
            if best.value == 1:
                best = d
            elif best.value != d.value:
                raise ShapeProblem(f"sizes {best} ({best.value}) and {d} ({d.value}) do not broadcast")
            elif not best.atoms:
                best = d
        out.append(best)
    return tuple(reversed(out))


def _same(a: dict[str, Any]) -> Shape:
    return _shape(a["input"])


def _pointwise(a: dict[str, Any]) -> Shape:
    return broadcast(*(_shape(v) for v in a.values()))


def flatten_args(value: Any) -> list[Any]:
    """``view(a, b)`` and ``view((a, b))`` alike."""
    items = plain(value)
    if isinstance(items, list | tuple) and len(items) == 1 and isinstance(plain(items[0]), list | tuple):
        items = plain(items[0])
    return list(items) if isinstance(items, list | tuple) else [value]


def reshape(shape: Shape, wanted: Sequence[Any]) -> Shape:
    """The shape that ``view`` gives; ``-1`` is a quotient of monomials."""
    total = product(shape)
    known: list[Size | None] = []
    for w in wanted:
        known.append(None if plain(w) == -1 else _size(w))
    if known.count(None) > 1:
        raise ShapeProblem("only one dimension can be inferred")
    rest = product(k for k in known if k is not None)
    if None in known:
        if rest.value == 0 or total.value % rest.value:
            raise ShapeProblem(f"a tensor of {total.value} elements cannot be viewed with {rest.value}")
        inferred = total.divide(rest)
        if inferred is None:
            inferred = atom(f"({total})/({rest})", total.value // rest.value)
        known[known.index(None)] = inferred
    out = tuple(k for k in known if k is not None)
    if product(out).value != total.value:
        raise ShapeProblem(f"a tensor of {total.value} elements cannot be viewed as {[k.value for k in out]}")
    return out


def _view(a: dict[str, Any]) -> Shape:
    return reshape(a["input"].shape, flatten_args(a["shape"]))


def _transpose(a: dict[str, Any]) -> Shape:
    s = list(a["input"].shape)
    i, j = _axis(a["dim0"], len(s)), _axis(a["dim1"], len(s))
    s[i], s[j] = s[j], s[i]
    return tuple(s)


def _permute(a: dict[str, Any]) -> Shape:
    s = a["input"].shape
    return tuple(s[_axis(d, len(s))] for d in flatten_args(a["dims"]))


def _unsqueeze(a: dict[str, Any]) -> Shape:
    s = list(a["input"].shape)
    s.insert(_axis(a["dim"], len(s) + 1), ONE)
    return tuple(s)


def _squeeze(a: dict[str, Any]) -> Shape:
    s = list(a["input"].shape)
    if a.get("dim") is None:
        if any(d.value == 1 and d.atoms for d in s):
            raise ShapeProblem("an axis has one element for this config only")
        return tuple(d for d in s if d.value != 1)
    i = _axis(a["dim"], len(s))
    return tuple(s if s[i].value != 1 else s[:i] + s[i + 1 :])


def _flatten(a: dict[str, Any]) -> Shape:
    s = a["input"].shape
    i, j = _axis(a.get("start_dim", 0), len(s)), _axis(a.get("end_dim", -1), len(s))
    return (*s[:i], product(s[i : j + 1]), *s[j + 1 :])


def _unflatten(a: dict[str, Any]) -> Shape:
    s = a["input"].shape
    i = _axis(a["dim"], len(s))
    return (*s[:i], *reshape((s[i],), flatten_args(a["sizes"])), *s[i + 1 :])


def _expand(a: dict[str, Any]) -> Shape:
    s = a["input"].shape
    wanted = flatten_args(a["sizes"])
    lead = len(wanted) - len(s)
    out = []
    for i, w in enumerate(wanted):
        old = s[i - lead] if i >= lead else ONE
        if plain(w) == -1:
            out.append(old)
        elif old.value == 1 or old.value == _size(w).value:
            out.append(_size(w) if old.value == 1 else old)
        else:
            raise ShapeProblem(f"size {old.value} cannot be expanded to {plain(w)}")
    return tuple(out)


def _repeat(a: dict[str, Any]) -> Shape:
    s = a["input"].shape
    wanted = [_size(w) for w in flatten_args(a["sizes"])]
    padded = (ONE,) * (len(wanted) - len(s)) + s
    return tuple(d * w if w.value != 1 else d for d, w in zip(padded, wanted, strict=True))


def _repeat_interleave(a: dict[str, Any]) -> Shape:
    s = list(a["input"].shape)
    i = _axis(a["dim"], len(s))
    s[i] = s[i] * _size(a["repeats"])
    return tuple(s)


def _split_sizes(a: dict[str, Any]) -> list[Size]:
    s = a["input"].shape
    i = _axis(a.get("dim", 0), len(s))
    wanted = plain(a["sizes"])
    if isinstance(wanted, list | tuple):
        sizes = [_size(w) for w in wanted]
    else:
        each = _size(a["sizes"])
        n, rest = divmod(s[i].value, each.value)
        sizes = [each] * n + ([constant(rest)] if rest else [])
    if sum(z.value for z in sizes) != s[i].value:
        raise ShapeProblem(f"split sizes {[z.value for z in sizes]} do not add up to {s[i].value}")
    return sizes


def _split(a: dict[str, Any]) -> tuple[Shape, ...]:
    s = a["input"].shape
    i = _axis(a.get("dim", 0), len(s))
    return tuple((*s[:i], z, *s[i + 1 :]) for z in _split_sizes(a))


def _chunk(a: dict[str, Any]) -> tuple[Shape, ...]:
    s = a["input"].shape
    i, n = _axis(a.get("dim", 0), len(s)), int(plain(a["chunks"]))
    if s[i].value % n:
        raise ShapeProblem(f"{s[i].value} does not divide into {n} chunks")
    part = s[i].divide(constant(n)) or atom(f"({s[i]})/{n}", s[i].value // n)
    return tuple((*s[:i], part, *s[i + 1 :]) for _ in range(n))


def _unbind(a: dict[str, Any]) -> tuple[Shape, ...]:
    s = a["input"].shape
    i = _axis(a.get("dim", 0), len(s))
    return tuple((*s[:i], *s[i + 1 :]) for _ in range(s[i].value))


def _cat(a: dict[str, Any]) -> Shape:
    parts = [t.shape for t in a["tensors"]]
    i = _axis(a.get("dim", 0), len(parts[0]))
    _equal([(*p[:i], *p[i + 1 :]) for p in parts])
    sizes = [p[i] for p in parts]
    total = sum(z.value for z in sizes)
    if all(z.same(sizes[0]) for z in sizes):
        joined = sizes[0] * constant(len(sizes))
    else:
        joined = atom("+".join(map(str, sizes)), total)
    return (*parts[0][:i], joined, *parts[0][i + 1 :])


def _equal(shapes: Sequence[Shape]) -> None:
    """Raises ShapeProblem where the shapes are not of the same sizes."""
    sizes = {tuple(d.value for d in s) for s in shapes}
    if len(sizes) > 1:
        raise ShapeProblem(f"the shapes {' and '.join(map(str, sorted(sizes)))} differ")


def _stack(a: dict[str, Any]) -> Shape:
    _equal([t.shape for t in a["tensors"]])
    s = list(a["tensors"][0].shape)
    s.insert(_axis(a.get("dim", 0), len(s) + 1), constant(len(a["tensors"])))
    return tuple(s)


def normal_index(key: Any) -> tuple[Any, ...]:
    return tuple(plain(k) for k in key) if isinstance(key, tuple) else (plain(key),)


def _slice_size(size: Size, key: slice) -> Size:
    start, stop, step = (plain(p) for p in (key.start, key.stop, key.step))
    n = len(range(size.value)[slice(start, stop, step)])
    if n == size.value:
        return size
    for bound in (key.stop, key.start):
        known = size_of(bound) if bound is not None and not isinstance(bound, Tensor) else None
        if known is not None and known.value == n and known.atoms:
            return known
    if step in (None, 1) and size.value % 2 == 0 and n * 2 == size.value:
        return size.divide(constant(2)) or atom(f"({size})/2", n)
    if step == 2 and n * 2 == size.value:
        return size.divide(constant(2)) or atom(f"({size})/2", n)
    return atom(f"({size})[{start}:{stop}:{step}]", n) if size.atoms else constant(n)


def _getitem(a: dict[str, Any]) -> Shape:
    s = list(a["input"].shape)
    keys = list(normal_index(a["index"]))
    if Ellipsis in [k if k is Ellipsis else 0 for k in keys]:
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        used = sum(1 for k in keys if k is not None and k is not Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(s) - used)
    out: list[Size] = []
    i = 0
    for k in keys:
        if k is None:
            out.append(ONE)
            continue
        if i >= len(s):
            raise ShapeProblem("too many indices")
        if isinstance(k, slice):
            out.append(_slice_size(s[i], k))
        elif isinstance(k, Tensor):
            if k.dtype == "bool":
                raise ShapeProblem("how many elements a mask selects depends on the data")
            out.extend(k.shape)
        elif isinstance(k, bool) or not isinstance(k, int):
            raise ShapeProblem(f"the index {k!r} is not known")
        elif not -s[i].value <= k < s[i].value:
            raise ShapeProblem(f"the index {k} is out of range for {s[i].value}")
        i += 1
    out.extend(s[i:])
    return tuple(out)


def _dims(a: dict[str, Any], rank: int) -> list[int]:
    dim = plain(a.get("dim"))
    if dim is None:
        return list(range(rank))
    return [_axis(d, rank) for d in (dim if isinstance(dim, list | tuple) else [dim])]


def _reduce(a: dict[str, Any]) -> Shape:
    s = a["input"].shape
    dims = _dims(a, len(s))
    if plain(a.get("keepdim", False)):
        return tuple(ONE if i in dims else d for i, d in enumerate(s))
    return tuple(d for i, d in enumerate(s) if i not in dims)


def _matmul(a: dict[str, Any]) -> Shape:
    x, y = a["input"].shape, a["other"].shape
    if len(x) < 2 or len(y) < 2:
        raise ShapeProblem("matmul of vectors is not supported")
    if x[-1].value != y[-2].value:
        raise ShapeProblem(f"matmul of {x[-1].value} columns with {y[-2].value} rows")
    return (*broadcast(x[:-2], y[:-2]), x[-2], y[-1])


def _linear(a: dict[str, Any]) -> Shape:
    x, w = a["input"].shape, a["weight"].shape
    if x[-1].value != w[1].value:
        raise ShapeProblem(f"a linear layer of {w[1].value} inputs is given {x[-1].value}")
    if a.get("bias") is not None:
        _equal([a["bias"].shape, w[:1]])
    return (*x[:-1], w[0])


def _embedding(a: dict[str, Any]) -> Shape:
    return (*a["input"].shape, a["weight"].shape[-1])


def _arange(a: dict[str, Any]) -> Shape:
    start, end, step = (plain(a.get(k)) for k in ("start", "end", "step"))
    if end is None:
        size = size_of(a["start"])
        return (size if size is not None else constant(int(start)),)
    n = len(range(int(start), int(end), int(step or 1)))
    stop = size_of(a["end"])
    if stop is not None and start == 0:
        if (step or 1) == 1:
            return (stop,)
        return (stop.divide(constant(int(step))) or atom(f"({stop})/{step}", n),)
    return (constant(n),)


def _normalized(a: dict[str, Any]) -> Shape:
    s = a["input"].shape
    dims = flatten_args(a["normalized_shape"])
    wanted = tuple(_size(d) for d in dims)
    _equal([wanted, s[len(s) - len(wanted) :], *(a[k].shape for k in ("weight", "bias") if a.get(k) is not None)])
    return _same(a)


def _created(a: dict[str, Any]) -> Shape:
    return tuple(_size(d) for d in flatten_args(a["size"]))


def _einsum(a: dict[str, Any]) -> Shape:
    ins, out = str(plain(a["equation"])).replace(" ", "").split("->")
    sizes: dict[str, Size] = {}
    for term, t in zip(ins.split(","), a["tensors"], strict=True):
        for letter, size in zip(term, t.shape, strict=True):
            _equal([(sizes.setdefault(letter, size),), (size,)])
    return tuple(sizes[c] for c in out)


# ---------------------------------------------------------------------- numpy rules


def _np_index(index: Any) -> Any:
    keys = index if isinstance(index, tuple) else (index,)
    return tuple(
        slice(*(plain(p) for p in (k.start, k.stop, k.step))) if isinstance(k, slice) else plain(k) for k in keys
    )


def _np_dims(a: dict[str, Any]) -> Any:
    d = deep_plain(a.get("dim"))
    return tuple(d) if isinstance(d, list) else d


def _softmax(a: dict[str, Any]) -> Any:
    x = a["input"]
    e = np.exp(x - np.max(x, axis=plain(a["dim"]), keepdims=True))
    return rounded(e / e.sum(axis=plain(a["dim"]), keepdims=True), _cast_name(a))


def _erf(x: Any) -> Any:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x)


def activation(name: str, x: Any) -> Any:
    """The activations of ``ACT2FN`` by name, on an array. Raises KeyError for an unknown name."""
    sigmoid = 1 / (1 + np.exp(-x))
    table: dict[str, Callable[[], Any]] = {
        "silu": lambda: x * sigmoid,
        "swish": lambda: x * sigmoid,
        "gelu": lambda: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
        "gelu_new": lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "gelu_pytorch_tanh": lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "gelu_fast": lambda: 0.5 * x * (1 + np.tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))),
        "quick_gelu": lambda: x / (1 + np.exp(-1.702 * x)),
        "relu": lambda: np.maximum(x, 0),
        "relu2": lambda: np.maximum(x, 0) ** 2,
        "tanh": lambda: np.tanh(x),
        "sigmoid": lambda: sigmoid,
        "linear": lambda: x,
        "softplus": lambda: np.log1p(np.exp(x)),
    }
    return table[name]()


def _split_np(a: dict[str, Any]) -> Any:
    dim = plain(a.get("dim", 0))
    sizes = deep_plain(a["sizes"])
    n = a["input"].shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, n - i) for i in range(0, n, sizes)]
    return tuple(np.split(a["input"], np.cumsum(sizes)[:-1], axis=dim))


def _fill_like(value: float) -> Callable[[dict[str, Any]], Any]:
    return lambda a: np.full(tuple(deep_plain(flatten_args(a["size"]))), value)


def _unary(fn: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda a: fn(a["input"])


def _binary(fn: Callable[[Any, Any], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda a: fn(a["input"], a["other"])


def _dtype_arg(a: dict[str, Any]) -> str | None:
    value = plain(a.get("dtype"))
    path = getattr(value, "path", None)
    return path.rpartition(".")[2] if path else None


def _cast_dtype(a: dict[str, Any]) -> str | None:
    return _dtype_arg(a) or a["input"].dtype


def rounded(x: Any, dtype: str | None) -> Any:
    """``x`` as a 16-bit dtype holds it, so that a confirmation by value sees where the source rounds."""
    if dtype in ("float16", "half"):
        return x.astype(np.float16).astype(np.float64)
    if dtype == "bfloat16":
        bits = np.asarray(x, np.float32).view(np.uint32)
        kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
        return kept.astype(np.uint32).view(np.float32).astype(np.float64)
    return x


def _cast_name(a: dict[str, Any]) -> str | None:
    path = getattr(plain(a.get("dtype")), "path", None)
    return str(path).rpartition(".")[2] if path else None


def _numpy_cast(a: dict[str, Any]) -> Any:
    x = np.asarray(a["input"])
    wanted = _cast_name(a)
    if wanted == "bool":
        return x != 0
    if wanted is not None and "int" in wanted:
        return np.trunc(x.astype(np.float64))
    return rounded(x.astype(np.float64) if x.dtype == bool else x, wanted)


def _reduce_np(fn: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda a: fn(a["input"], axis=_np_dims(a), keepdims=bool(plain(a.get("keepdim", False))))


def _same_dtype(a: dict[str, Any]) -> str | None:
    value = a["input"]
    return value.dtype if isinstance(value, Tensor) else None


def _arange_dtype(a: dict[str, Any]) -> str:
    return "float32" if any(isinstance(plain(a.get(k)), float) for k in ("start", "end", "step")) else "int64"


def _sum_dtype(a: dict[str, Any]) -> str | None:
    """Whole numbers of any width, and truth values, add up to int64."""
    dtype = _same_dtype(a)
    return dtype if dtype is None or dtype in FLOATS else "int64"


def _data_dtype(a: dict[str, Any]) -> str | None:
    """What torch makes of Python numbers: ``data`` of a tensor, ``value`` to fill one with."""
    data = deep_plain(a.get("data", a.get("value")))
    while isinstance(data, list | tuple) and data:
        data = data[0] if not any(isinstance(d, float) for d in data) else 0.0
    kinds = {bool: "bool", int: "int64"}
    return _dtype_arg(a) or kinds.get(type(data), "float32")


def _created_dtype(a: dict[str, Any]) -> str | None:
    return _dtype_arg(a) or "float32"


# ---------------------------------------------------------------------- the table

# layout
_op(
    "view",
    "layout",
    "input *shape",
    "Tensor.view Tensor.reshape torch.reshape Tensor.view_as",
    _view,
    lambda a: np.reshape(a["input"], tuple(deep_plain(flatten_args(a["shape"])))),
)
_op(
    "transpose",
    "layout",
    "input dim0 dim1",
    "Tensor.transpose torch.transpose Tensor.swapaxes torch.swapaxes",
    _transpose,
    lambda a: np.swapaxes(a["input"], plain(a["dim0"]), plain(a["dim1"])),
)
_op(
    "permute",
    "layout",
    "input *dims",
    "Tensor.permute torch.permute",
    _permute,
    lambda a: np.transpose(a["input"], deep_plain(flatten_args(a["dims"]))),
)
_op(
    "contiguous",
    "layout",
    "input memory_format",
    "Tensor.contiguous Tensor.clone torch.clone Tensor.detach Tensor.cpu Tensor.cuda",
    _same,
    _unary(lambda x: x),
)
_op(
    "unsqueeze",
    "layout",
    "input dim",
    "Tensor.unsqueeze torch.unsqueeze",
    _unsqueeze,
    lambda a: np.expand_dims(a["input"], plain(a["dim"])),
)
_op(
    "squeeze",
    "layout",
    "input dim",
    "Tensor.squeeze torch.squeeze",
    _squeeze,
    lambda a: (
        a["input"]
        if a.get("dim") is not None and a["input"].shape[plain(a["dim"])] != 1
        else np.squeeze(a["input"], plain(a.get("dim")))
    ),
)
_op(
    "flatten",
    "layout",
    "input start_dim end_dim",
    "Tensor.flatten torch.flatten",
    _flatten,
    lambda a: _np_flatten(a["input"], plain(a.get("start_dim", 0)), plain(a.get("end_dim", -1))),
)
_op(
    "unflatten",
    "layout",
    "input dim sizes",
    "Tensor.unflatten torch.unflatten",
    _unflatten,
    lambda a: _np_unflatten(a["input"], plain(a["dim"]), deep_plain(flatten_args(a["sizes"]))),
)
_op(
    "expand",
    "layout",
    "input *sizes",
    "Tensor.expand",
    _expand,
    lambda a: _np_expand(a["input"], deep_plain(flatten_args(a["sizes"]))),
)
_op(
    "repeat",
    "layout",
    "input *sizes",
    "Tensor.repeat torch.tile",
    _repeat,
    lambda a: np.tile(a["input"], deep_plain(flatten_args(a["sizes"]))),
)
_op(
    "repeat_interleave",
    "layout",
    "input repeats dim",
    "Tensor.repeat_interleave torch.repeat_interleave",
    _repeat_interleave,
    lambda a: np.repeat(a["input"], plain(a["repeats"]), axis=plain(a["dim"])),
)
_op("split", "layout", "input sizes dim", "Tensor.split torch.split Tensor.split_with_sizes", _split, _split_np)
_op(
    "chunk",
    "layout",
    "input chunks dim",
    "Tensor.chunk torch.chunk",
    _chunk,
    lambda a: tuple(np.split(a["input"], plain(a["chunks"]), axis=plain(a.get("dim", 0)))),
)
_op(
    "unbind",
    "layout",
    "input dim",
    "Tensor.unbind torch.unbind",
    _unbind,
    lambda a: tuple(np.moveaxis(a["input"], plain(a.get("dim", 0)), 0)),
)
_op("getitem", "layout", "input index", "Tensor.__getitem__", _getitem, lambda a: a["input"][_np_index(a["index"])])
_op(
    "cat",
    "layout",
    "tensors dim",
    "torch.cat torch.concat torch.concatenate",
    _cat,
    lambda a: np.concatenate(a["tensors"], axis=plain(a.get("dim", 0))),
)
_op(
    "stack",
    "layout",
    "tensors dim",
    "torch.stack",
    _stack,
    lambda a: np.stack(a["tensors"], axis=plain(a.get("dim", 0))),
)

# pointwise
_two: Callable[[Any, Any], Any]
_one: Callable[[Any], Any]
_TWO: tuple[tuple[str, Callable[[Any, Any], Any], str], ...]
_TWO = (
    ("add", np.add, "add"),
    ("mul", np.multiply, "mul multiply"),
    ("maximum", np.maximum, "maximum"),
    ("minimum", np.minimum, "minimum"),
    ("eq", np.equal, "eq"),
    ("ne", np.not_equal, "ne"),
)
for _name, _two, _torch in _TWO:
    _op(
        _name,
        "pointwise",
        "input other",
        " ".join(f"torch.{t} Tensor.{t}" for t in _torch.split()),
        _pointwise,
        _binary(_two),
        commutes=True,
    )
_TWO = (
    ("sub", np.subtract, "sub subtract"),
    ("div", np.divide, "div divide true_divide"),
    ("floordiv", np.floor_divide, "floor_divide"),
    ("pow", np.power, "pow"),
    ("lt", np.less, "lt"),
    ("le", np.less_equal, "le"),
    ("gt", np.greater, "gt"),
    ("ge", np.greater_equal, "ge"),
    ("remainder", np.mod, "remainder"),
)
for _name, _two, _torch in _TWO:
    _op(
        _name,
        "pointwise",
        "input other",
        " ".join(f"torch.{t} Tensor.{t}" for t in _torch.split()),
        _pointwise,
        _binary(_two),
    )
_ONE: tuple[tuple[str, Callable[[Any], Any], str], ...] = (
    ("neg", np.negative, "torch.neg Tensor.neg"),
    ("rsqrt", lambda x: 1 / np.sqrt(x), "torch.rsqrt Tensor.rsqrt"),
    ("sqrt", np.sqrt, "torch.sqrt Tensor.sqrt"),
    ("exp", np.exp, "torch.exp Tensor.exp"),
    ("log", np.log, "torch.log Tensor.log"),
    ("cos", np.cos, "torch.cos Tensor.cos"),
    ("sin", np.sin, "torch.sin Tensor.sin"),
    ("abs", np.abs, "torch.abs Tensor.abs"),
    ("floor", np.floor, "torch.floor Tensor.floor"),
    ("reciprocal", lambda x: 1 / x, "torch.reciprocal Tensor.reciprocal"),
    ("square", np.square, "torch.square Tensor.square"),
    ("invert", np.logical_not, "torch.logical_not Tensor.logical_not"),
)
for _name, _one, _torch in _ONE:
    _op(_name, "pointwise", "input", _torch, _same, _unary(_one))
_op("act", "pointwise", "input kind", "", _same, lambda a: activation(str(plain(a["kind"])), a["input"]))
_op(
    "where",
    "pointwise",
    "condition input other",
    "torch.where",
    _pointwise,
    lambda a: np.where(a["condition"], a["input"], a["other"]),
)
_op(
    "clamp",
    "pointwise",
    "input min max",
    "torch.clamp Tensor.clamp torch.clip Tensor.clip",
    _same,
    lambda a: np.clip(a["input"], plain(a.get("min")), plain(a.get("max"))),
)
_op(
    "masked_fill",
    "pointwise",
    "input mask value",
    "Tensor.masked_fill",
    _pointwise,
    lambda a: np.where(a["mask"], plain(a["value"]), a["input"]),
)

# cast
_op("cast", "cast", "input dtype", "", _same, _numpy_cast, _cast_dtype)

# reduce
_op("mean", "reduce", "input dim keepdim", "torch.mean Tensor.mean", _reduce, _reduce_np(np.mean))
_op("sum", "reduce", "input dim keepdim", "torch.sum Tensor.sum", _reduce, _reduce_np(np.sum), _sum_dtype)
_op("amax", "reduce", "input dim keepdim", "torch.amax Tensor.amax", _reduce, _reduce_np(np.max))
_op(
    "var",
    "reduce",
    "input dim keepdim correction",
    "torch.var Tensor.var",
    _reduce,
    lambda a: np.var(
        a["input"],
        axis=_np_dims(a),
        keepdims=bool(plain(a.get("keepdim", False))),
        ddof=int(plain(a.get("correction", 1))),
    ),
)
_op(
    "softmax",
    "reduce",
    "input dim dtype",
    "torch.softmax Tensor.softmax torch.nn.functional.softmax",
    _same,
    _softmax,
    _cast_dtype,
)
_op(
    "cumsum",
    "reduce",
    "input dim",
    "torch.cumsum Tensor.cumsum",
    _same,
    lambda a: np.cumsum(a["input"], axis=plain(a["dim"])),
    _sum_dtype,
)

# matmul
_op("matmul", "matmul", "input other", "torch.matmul Tensor.matmul torch.bmm Tensor.bmm", _matmul, _binary(np.matmul))
_op(
    "linear",
    "matmul",
    "input weight bias",
    "torch.nn.functional.linear",
    _linear,
    lambda a: a["input"] @ np.swapaxes(a["weight"], -1, -2) + (0 if a.get("bias") is None else a["bias"]),
)
_op(
    "einsum",
    "matmul",
    "equation *tensors",
    "torch.einsum",
    _einsum,
    lambda a: np.einsum(str(plain(a["equation"])), *a["tensors"]),
)

# lookups
_op(
    "embedding",
    "other",
    "input weight",
    "torch.nn.functional.embedding",
    _embedding,
    lambda a: a["weight"][a["input"].astype(int)],
    lambda a: a["weight"].dtype,
)

# normalisation that torch has by name
_op(
    "torch_layer_norm",
    "other",
    "input normalized_shape weight bias eps",
    "torch.nn.functional.layer_norm",
    _normalized,
    lambda a: _np_layer_norm(a),
    _same_dtype,
)
_op(
    "torch_rms_norm",
    "other",
    "input normalized_shape weight eps",
    "torch.nn.functional.rms_norm torch.rms_norm",
    _normalized,
    lambda a: _np_rms_norm(a),
    _same_dtype,
)

# create
_op(
    "arange",
    "create",
    "start end step dtype",
    "torch.arange",
    _arange,
    lambda a: np.arange(*(plain(a[k]) for k in ("start", "end", "step") if a.get(k) is not None)).astype(np.float64),
    lambda a: _dtype_arg(a) or _arange_dtype(a),
)
_op("zeros", "create", "*size dtype", "torch.zeros", _created, _fill_like(0.0), _created_dtype)
_op("ones", "create", "*size dtype", "torch.ones", _created, _fill_like(1.0), _created_dtype)
_op("empty", "create", "*size dtype", "torch.empty", _created, _fill_like(0.0), _created_dtype)
_op(
    "full",
    "create",
    "size value dtype",
    "torch.full",
    _created,
    lambda a: np.full(tuple(deep_plain(flatten_args(a["size"]))), plain(a["value"])),
    _data_dtype,
)
_op("zeros_like", "create", "input dtype", "torch.zeros_like", _same, _unary(np.zeros_like), _cast_dtype)
_op("ones_like", "create", "input dtype", "torch.ones_like", _same, _unary(np.ones_like), _cast_dtype)
_op(
    "tensor",
    "create",
    "data dtype",
    "torch.tensor torch.as_tensor",
    lambda a: _data_shape(plain(a["data"])),
    lambda a: np.asarray(deep_plain(a["data"]), dtype=np.float64),
    _data_dtype,
)

# what only the compiler makes: inputs, parameters, the attention interface, the table of a rope type
_op("input", "other", "name", "", lambda a: (), None)
_op("parameter", "other", "name", "", lambda a: (), None)
_op("attention", "other", "query key value", "", lambda a: a["query"].shape, None, lambda a: a["query"].dtype)
_op("rope_init", "other", "rope_type", "", lambda a: (), None, lambda a: "float32")


def _data_shape(data: Any) -> Shape:
    data = plain(data)
    if isinstance(data, list | tuple):
        return (constant(len(data)), *(_data_shape(data[0]) if data else ()))
    return ()


def _np_flatten(x: Any, start: int, end: int) -> Any:
    start, end = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def _np_unflatten(x: Any, dim: int, sizes: list[int]) -> Any:
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _np_expand(x: Any, sizes: list[int]) -> Any:
    lead = len(sizes) - x.ndim
    shape = tuple((x.shape[i - lead] if i >= lead else 1) if s == -1 else s for i, s in enumerate(sizes))
    return np.broadcast_to(x, shape)


def _np_layer_norm(a: dict[str, Any]) -> Any:
    x = a["input"]
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + plain(a.get("eps", 1e-5)))
    y = y if a.get("weight") is None else y * a["weight"]
    return y if a.get("bias") is None else y + a["bias"]


def _np_rms_norm(a: dict[str, Any]) -> Any:
    x = a["input"]
    eps = plain(a.get("eps"))
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + (eps if eps is not None else 1.1920929e-07))
    return y if a.get("weight") is None else y * a["weight"]


FLOATS = ("model", "float16", "bfloat16", "float32", "float64")


def result_dtype(row: Op, args: dict[str, Any]) -> str | None:
    """The output dtype: the row's own rule, or promotion over the tensor operands."""
    if row.dtype is not None:
        return row.dtype(args)
    if row.name in ("eq", "ne", "lt", "le", "gt", "ge", "invert"):
        return "bool"
    dtypes: list[str] = []
    zero_dim: list[str] = []
    for key, value in args.items():
        if key in ("condition", "mask", "index"):
            continue
        for v in value if isinstance(value, list | tuple) else (value,):
            if isinstance(v, Tensor) and v.dtype is not None:
                (dtypes if v.shape else zero_dim).append(v.dtype)
    known = dtypes or zero_dim
    if not known:
        return None
    floats = [d for d in known if d in FLOATS]
    if not floats:
        if row.name in ("div", "rsqrt", "cos", "sin", "exp", "mean") or any(
            isinstance(plain(v), float) for v in args.values()
        ):
            return "float32"
        return known[0]
    return max(floats, key=FLOATS.index)


def evaluate(row: Op, args: dict[str, Any]) -> Any:
    """Run a row on numpy arrays (tensors already replaced by arrays)."""
    if row.evaluate is None:
        raise ShapeProblem(f"{row.name} has no numpy rule")
    return row.evaluate(args)


__all__ = ["BY_ALIAS", "OPS", "Op", "ShapeProblem", "Sym", "activation", "broadcast", "evaluate", "result_dtype"]
