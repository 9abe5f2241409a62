"""``_checks.py`` of the package: the question "is this port for that config?" as plain Python.

The planner states each folded decision as an expression over ``config``. Such an
expression may hold text from a modeling file that nobody vetted, and it will run in
the user's engine, so only a small, side-effect-free part of Python passes: reading
the config, arithmetic, comparisons and a few builtins.

Example input: ``FoldedCheck("config.hidden_act", "silu", "the activation is fused with the gate")``

Example output::

    (
        "config.hidden_act",
        lambda config: config.hidden_act,
        "silu",
        "the activation is fused with the gate",
    ),
"""

from __future__ import annotations

import ast
import io
import math
import tokenize
from collections.abc import Iterable

from fusec.diagnostics import refuse
from fusec.emit.quote import plain, python_string
from fusec.plan.types import FoldedCheck

_BUILTINS = frozenset(
    "abs all any bool dict enumerate float getattr hasattr int isinstance len list max min range round set sorted "
    "str sum tuple zip".split()
)
_METHODS = frozenset({"endswith", "get", "items", "keys", "lower", "startswith", "upper", "values"})
# What `isinstance` is asked about.
_TYPES = frozenset({"bool", "dict", "float", "int", "list", "str", "tuple"})
_NODES = (
    ast.Expression, ast.Name, ast.Load, ast.Store, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Compare,
    ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.IfExp, ast.Call, ast.keyword, ast.List, ast.Tuple, ast.Set, ast.Dict,
    ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp, ast.comprehension,
    ast.boolop, ast.unaryop, ast.operator, ast.cmpop,
)  # fmt: skip

_TEMPLATE = '''\
"""Whether this port is for a given config: it was made for some values, and checks them before it serves."""

MODEL_TYPE = {model_type}

# Each: what is read, how, the value that the port was made for, what hangs on it.
CHECKS = ({rows})


def fits(config):
    """``None`` if the port is for ``config``, else the reason why not, as part of a sentence."""
    if getattr(config, "model_type", None) != MODEL_TYPE:
        return f"its model_type is {{getattr(config, 'model_type', None)!r}}, the port was made for {{MODEL_TYPE!r}}"
    for name, read, made_for, reason in CHECKS:
        try:
            value = read(config)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            return f"{{name}} cannot be read ({{error}}); {{reason}}"
        # True == 1 in Python, but a config that says 1 was not what the port was made for
        if isinstance(value, bool) != isinstance(made_for, bool) or value != made_for:
            return f"{{name}} is {{value!r}}, the port was made for {{made_for!r}}; {{reason}}"
    return None
'''


def checks_module(model_type: str, checks: Iterable[FoldedCheck]) -> str:
    """The text of ``_checks.py``. Raises FUS601 for an expression or a value that is not safe to write."""
    rows = "".join(_row(check) for check in checks)
    return _TEMPLATE.format(model_type=python_string(model_type), rows=rows and f"\n{rows}")


def _row(check: FoldedCheck) -> str:
    expression = safe_expression(check.expression)
    fields = (
        python_string(expression),
        f"lambda config: {expression}",
        _literal(check),
        python_string(plain(check.reason)),
    )
    return "    (\n" + "".join(f"        {field},\n" for field in fields) + "    ),\n"


def safe_expression(text: str) -> str:
    """``text`` in Python's own normal form, once every part of it is known to be harmless; FUS601 otherwise."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise _unsafe(text) from error
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not _harmless(node, bound, called):
            raise _unsafe(text)
    normal = ast.unparse(tree)
    if not normal.isascii() or "\n" in normal:
        raise _unsafe(text)
    return _with_own_quotes(normal)


def _with_own_quotes(expression: str) -> str:
    """``expression`` with its strings as :func:`~fusec.emit.quote.python_string` writes them."""
    done, parts = 0, []
    for token in tokenize.generate_tokens(io.StringIO(expression).readline):
        if token.type == tokenize.STRING:
            parts += [expression[done : token.start[1]], python_string(ast.literal_eval(token.string))]
            done = token.end[1]
    return "".join([*parts, expression[done:]])


def _harmless(node: ast.AST, bound: set[str], called: set[int]) -> bool:
    if not isinstance(node, _NODES):
        return False
    if isinstance(node, ast.Name):
        return node.id == "config" or node.id in (_BUILTINS if id(node) in called else bound | _TYPES)
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, (str, int, float))
    if isinstance(node, ast.Attribute):
        return not node.attr.startswith("_") and (id(node) not in called or node.attr in _METHODS)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
        # the name must be a literal, so that it can be seen not to be a private one
        key = node.args[1] if len(node.args) > 1 else None
        return isinstance(key, ast.Constant) and isinstance(key.value, str) and not key.value.startswith("_")
    if isinstance(node, ast.Call):
        return isinstance(node.func, (ast.Name, ast.Attribute))
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, (ast.Pow, ast.LShift, ast.MatMult))  # cheap to write, costly to evaluate
    return True


def _literal(check: FoldedCheck) -> str:
    value = check.value
    if isinstance(value, float) and not math.isfinite(value):
        raise _unsafe(check.expression)
    if value is not None and type(value) not in (bool, int, float, str):
        raise _unsafe(check.expression)
    return python_string(value) if isinstance(value, str) else repr(value)


def _unsafe(expression: str) -> Exception:
    return refuse(
        "FUS601",
        f"The check {expression!a} is not a plain reading of the config, and a port would have to run it.",
        hint="This decision of the modeling file cannot be taken once and for all.",
    )
