"""Names and strings from a config or from Hub code that try to break out of the files they are written into."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest

from fusec.diagnostics import FusecError
from fusec.emit import package_files
from fusec.emit.checks import checks_module, safe_expression
from fusec.emit.quote import code, prose, python_string, toml
from fusec.plan.types import FoldedCheck
from fusec.read.types import Source

HOSTILE = [
    '"]\nimport os',
    "../../x",
    '"""\nimport os\n"""',
    "x'; import os; '",
    "a\\",
    "$package ${module} $$",
    "{model_type} {0}",
    "| cell | `code` <script>alert(1)</script> ![x](y)",
    "\x00\x1b[31m\u202e\ud800",
    "CON",
    "é\N{GRINNING FACE}",
    "x" * 5000,
    "",
]


def facts_with(facts, text: str):
    """Every string that comes from outside set to ``text``."""
    source = Source(text, text, "A = 1\n", text)
    config = {"model_type": text, "architectures": ["ToyForCausalLM"], text: text}
    return facts(
        model=text, model_type=text, config=config, revision=text, modeling=source, configuration=source,
        checks=(FoldedCheck("config.hidden_act", text, text),),
    )  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_string_breaks_out_of_the_package(facts, text: str) -> None:
    made = package_files(*facts_with(facts, text))
    for name, content in made.files.items():
        assert not name.startswith("/")
        assert ".." not in name.split("/")
        assert name.isascii()
        assert len(name) < 200
        if name.endswith(".py") and not name.startswith("tests/harness"):
            tree = ast.parse(content)
            imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
            assert "os" not in imported or name.endswith(("_registry.py", "test_port.py"))
    project = tomllib.loads(made.files["pyproject.toml"].decode())["project"]
    assert project["entry-points"]["vllm.general_plugins"] == {made.package: f"{made.package}:register"}
    lock = json.loads(made.files["fusec.lock"])
    assert lock["model_type"] == text
    assert lock["config"][text] == text
    readme = made.files["README.md"].decode()
    outside_code = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", readme)
    assert "<script>" not in outside_code
    assert "![x](" not in outside_code
    assert not any(ord(char) < 32 and char != "\n" for char in readme)
    assert made.package.isidentifier()
    assert made.files[f"{made.package}/_checks.py"].isascii()


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_check_says_exactly_what_it_was_given(text: str) -> None:
    module = run(checks_module(text, [FoldedCheck("config.hidden_act", text, text)]))
    assert module["MODEL_TYPE"] == text
    assert module["fits"](SimpleNamespace(model_type=text, hidden_act=text)) is None
    assert module["fits"](SimpleNamespace(model_type=text, hidden_act=text + "!")) is not None
    assert module["fits"](SimpleNamespace(model_type=text + "!", hidden_act=text)) is not None


@pytest.mark.parametrize(
    "name", ["../../x", "a-b", "1a", "import", "os", "vllm", "torch", "tests", "fusec", "é", "a" * 65]
)
def test_a_package_name_that_cannot_stand_is_refused(facts, name: str) -> None:
    with pytest.raises(FusecError, match="cannot be the name of the package") as caught:
        package_files(*facts(), package_name=name)
    assert caught.value.exit_status == 2
    assert caught.value.diagnostics[0].code == "FUS601"


@pytest.mark.parametrize("architecture", ['X"]\nimport os', "../../X", "class", "", "X Y", "é"])
def test_an_architecture_that_is_no_class_name_is_refused(facts, architecture: str) -> None:
    with pytest.raises(FusecError, match="not the name of a class") as caught:
        package_files(*facts(architecture=architecture))
    assert caught.value.diagnostics[0].code == "FUS601"


def test_a_port_without_its_class_is_a_fault_of_ours(facts) -> None:
    from dataclasses import replace

    made = facts()
    with pytest.raises(FusecError, match="no class ToyForCausalLM") as caught:
        package_files(*replace(made, port=replace(made.port, modeling="pass\n")))
    assert caught.value.diagnostics[0].code == "FUS005"


SAFE = [
    "config.hidden_act",
    "getattr(config, 'head_dim', None) is not None",
    "config.rope_parameters.get('rope_type', 'default') == 'default'",
    "len(config.layer_types) // 2",
    "all(kind == 'full' for kind in config.layer_types)",
    "isinstance(config.heads, int) and not config.tied",
    "config.layer_types[0] if config.layer_types else None",
    "sorted({kind for kind in config.layer_types})",
    "config.text_config.hidden_size",
    "-config.x + 3.5 > 1e-06",
]
UNSAFE = [
    "__import__('os').system('true')",
    "config.__class__",
    "config.__init__.__globals__",
    "getattr(config, '__class__')",
    "getattr(config, 'a' + 'b')",
    "getattr(config, name)",
    "hasattr(config)",
    "open('/etc/passwd')",
    "config.save_pretrained('x')",
    "config.x()",
    "eval('1')",
    "(lambda: config)()",
    "[x for x in ().__class__.__base__.__subclasses__()]",
    "config.x if (y := 1) else 2",
    "f'{config}'",
    "'{0.__class__}'.format(config)",
    "config.a; import os",
    "config.a\nimport os",
    "config.a) or __import__('os')",
    "9 ** 9 ** 9",
    "1 << 9999999",
    "os.environ",
    "await config.x",
    "b'x'",
    "...",
    "",
    "\x00",
]


@pytest.mark.parametrize("expression", SAFE)
def test_reading_the_config_is_allowed(expression: str) -> None:
    assert ast.dump(ast.parse(safe_expression(expression))) == ast.dump(ast.parse(expression))


@pytest.mark.parametrize("expression", UNSAFE)
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(FusecError) as caught:
        safe_expression(expression)
    assert caught.value.diagnostics[0].code == "FUS601"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), [1], object()])
def test_a_value_that_is_no_literal_is_refused(value: Any) -> None:
    with pytest.raises(FusecError):
        checks_module("toy", [FoldedCheck("config.x", value, "r")])


def run(text: str) -> dict[str, Any]:
    module: dict[str, Any] = {}
    exec(text, module)
    return module


@pytest.mark.parametrize(
    ("made_for", "value", "fits"),
    [
        (True, True, True), (True, 1, False), (1, True, False), (None, None, True), (None, 0, False),
        (False, None, False),
        (10000, 10000.0, True), ("silu", "silu", True), ("silu", "gelu", False), (0.5, 0.5, True), (4, "4", False),
    ],
)  # fmt: skip
def test_what_a_check_accepts(made_for: Any, value: Any, fits: bool) -> None:
    module = run(checks_module("toy", [FoldedCheck("config.x", made_for, "the reason")]))
    reason = module["fits"](SimpleNamespace(model_type="toy", x=value))
    assert (reason is None) is fits
    if not fits:
        assert repr(made_for) in reason
        assert repr(value) in reason
        assert "the reason" in reason


def test_a_config_without_the_attribute_is_not_fitted() -> None:
    fits = run(checks_module("toy", [FoldedCheck("config.x.y", 1, "r")]))["fits"]
    assert "cannot be read" in fits(SimpleNamespace(model_type="toy"))
    assert "model_type is None" in fits(SimpleNamespace())


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_quoting(text: str) -> None:
    assert ast.literal_eval(python_string(text)) == text
    assert tomllib.loads(f"x = {toml(text)}")["x"] == text.replace("\ud800", "?")
    for shown in (code(text), prose(text)):
        assert "\n" not in shown
        assert "<script>" not in prose(text)
