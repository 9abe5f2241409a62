"""The symbol table against the installed engine and against the source of the newest tested one."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from fusec.target import MODEL_RUNTIME, REGISTRY_RUNTIME
from fusec.target.engine import find_engine
from fusec.target.inspect import check_source
from fusec.target.symbols import SYMBOLS, Call, Symbol, call


def helper():
    spec = importlib.util.spec_from_file_location(
        "fetch_engine_source", Path(__file__).parent / "fetch_engine_source.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installed() -> Path:
    engine = find_engine()
    assert engine is not None, "no vLLM is installed: `make setup` installs the pinned one"
    return engine.folder


def newest() -> Path:
    fetch = helper()
    try:
        return fetch.engine_source()
    except fetch.SourceMissing as missing:
        pytest.fail(str(missing))


SOURCES = {"installed": installed, "newest": newest}


@pytest.fixture(params=SOURCES, scope="module")
def source(request: pytest.FixtureRequest) -> Path:
    return SOURCES[request.param]()


@pytest.mark.timeout(1500)
def test_every_symbol_is_there_with_its_signature(source: Path) -> None:
    assert check_source(source) == []


def test_the_two_sources_are_the_first_and_the_last_tested_version() -> None:
    versions = {symbol.first for symbol in SYMBOLS.values()} | {symbol.last for symbol in SYMBOLS.values()}
    engine = find_engine()
    assert engine is not None
    assert engine.version is not None
    assert versions == {engine.version[:4], helper().VERSION[:4]}


def engine_imports(path: Path) -> set[tuple[str, str]]:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {(n.module, a.name) for n in nodes if (n.module or "").split(".")[0] == "vllm" for a in n.names}


RUNTIME = [path for path in (*MODEL_RUNTIME, REGISTRY_RUNTIME) if engine_imports(path)]


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: path.name)
def test_the_files_that_packages_carry_use_nothing_else(path: Path) -> None:
    assert engine_imports(path) <= {(symbol.module, symbol.name) for symbol in SYMBOLS.values()}


def test_an_argument_that_the_engine_lacks_is_noticed(source: Path) -> None:
    """The check does not pass because it looks at nothing: of every entry it reads the signature."""
    called = [symbol for symbol in SYMBOLS.values() if symbol.call]
    assert len(called) > 30
    wrong = [
        replace(symbol, call=Call(symbol.call.by_position, symbol.call.always, ("no_such_argument",)))
        for symbol in called
    ]
    assert [problem.message for problem in check_source(source, wrong)] == [
        f"{symbol.module}.{symbol.name} has no parameter no_such_argument." for symbol in called
    ]


TREE = {
    "__init__.py": "from .layers import Fused as Linear\nif TYPE_CHECKING:\n    from .layers import lazy\n",
    "layers/__init__.py": "from vllm.layers.linear import *\nfrom .linear import Fused, lazy\nflag = 1\n",
    "layers/linear.py": (
        "class Base:\n"
        "    def __init__(self, width, height=1, *, bias=True, **kwargs): ...\n"
        "    def load(self, weights, *, mapper=None): ...\n"
        "    @staticmethod\n    def pack(rows): ...\n"
        "class Fused(Base, Generic[T]):\n    kind = 'fused'\n"
        "@dataclass\nclass Facts:\n    name: str\n    size: int = 0\n"
        "def lazy(a, b, *, c): ...\n"
    ),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("engine") / "vllm"
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def symbol(module: str, name: str, what: str, arguments: str | None = None, /, **members: str | None) -> Symbol:
    used = {member: None if text is None else call(text) for member, text in members.items()}
    return Symbol(module, name, what, None if arguments is None else call(arguments), used)


RIGHT = [
    symbol("vllm.layers.linear", "Base", "class", "width! height! bias?", load="weights! mapper?", pack="rows!"),
    symbol("vllm.layers", "Fused", "class", "width! bias?", load="weights!", kind=None),  # the base's constructor
    symbol("vllm.layers", "Facts", "class", "name! size?"),  # through `import *`; a dataclass's fields
    symbol("vllm", "Linear", "class", "width!"),  # under another name
    symbol("vllm", "lazy", "function", "a! b! c"),  # a lazy export
    symbol("vllm.layers", "flag", "object"),
]
WRONG = [
    (symbol("vllm.gone", "X", "class"), "There is no module vllm.gone."),
    (symbol("vllm.layers", "Gone", "class"), "vllm.layers has no Gone."),
    (symbol("vllm.layers", "lazy", "class"), "vllm.layers.lazy is a function, not a class."),
    (symbol("vllm.layers", "Fused", "class", gone=None), "vllm.layers.Fused has no gone."),
    (symbol("vllm.layers", "Fused", "class", kind=""), "vllm.layers.Fused.kind is not a method."),
    # `**kwargs` would swallow it
    (symbol("vllm.layers", "Fused", "class", "width! sinks?"), "vllm.layers.Fused has no parameter sinks."),
    (
        symbol("vllm.layers", "lazy", "function", "b! a! c"),
        "vllm.layers.lazy takes (a, b) at the positions where ports pass (b, a).",
    ),
    (symbol("vllm.layers", "lazy", "function", "a! b! c!"), "vllm.layers.lazy takes (a, b) at the positions where"),
    (symbol("vllm.layers", "lazy", "function", "a! b!"), "vllm.layers.lazy requires the parameter c, which ports do"),
    # passed only sometimes is not enough
    (
        symbol("vllm.layers", "lazy", "function", "a! b! c?"),
        "vllm.layers.lazy requires the parameter c, which ports do",
    ),
    (symbol("vllm.layers.linear", "Base", "class", load="x!"), "vllm.layers.linear.Base.load has no parameter x."),
]


@pytest.mark.parametrize("right", RIGHT, ids=lambda s: s.name)
def test_what_is_there_is_found(tree: Path, right: Symbol) -> None:
    assert check_source(tree, [right]) == []


@pytest.mark.parametrize(("wrong", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_what_is_not_there_is_said(tree: Path, wrong: Symbol, sentence: str) -> None:
    messages = [problem.message for problem in check_source(tree, [wrong])]
    assert any(message.startswith(sentence) for message in messages), messages


def test_a_source_that_cannot_be_fetched_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure, never a skip: without the source the table is unchecked."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    fetch = helper()
    monkeypatch.setattr(fetch, "CACHE", tmp_path)
    with pytest.raises(fetch.SourceMissing, match=r"could not be downloaded: .+"):
        fetch.engine_source()
    assert list(tmp_path.iterdir()) == []
