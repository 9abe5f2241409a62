"""What the project promises about its own text: no model names in the core, no machines, arrows that point one way."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Who makes models. Their names, too, say that the core treats someone's model specially.
VENDORS = frozenset(
    "alibaba allenai anthropic baichuan baidu bytedance databricks deepseek eleutherai huawei ibm internlm kakao "
    "meituan meta microsoft minimax mistralai moonshot naver nexusflow openai salesforce stabilityai tencent upstage "
    "xiaomi zhipu".split()
)

# Names of transformers' model folders that are words of this field or of English, each with
# the sense in which the core may use it. Names of up to three letters are not looked for.
ORDINARY_WORDS = {
    "auto": "AutoConfig and its kin, whose results conversion is tested against",
    "clip": "torch's other name of clamp",
    "dots": "those of a dotted module name",
    "deprecated": "said of old config keys",
    "encoder_decoder": "the kind of model that is refused by that name",
    "flex_attention": "a kind of attention implementation",
    "meta": "torch's device without storage",
    "switch": "an environment variable that turns a port off",
    "vision": "what a model may have besides text",
}

# Strings that others chose and the core has to spell: the engine's name of a layer, the configs' name of a rope type.
GIVEN_NAMES = {"fusec/target/symbols.py": ["GemmaRMSNorm"], "fusec/target/runtime/rotary.py": ["llama3"]}


def tracked(*suffixes: str) -> list[Path]:
    """The files of the repository (tracked, or new and not ignored) with one of these suffixes."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return sorted(path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes))


def core() -> list[Path]:
    return [path for path in tracked(".py") if path.is_relative_to(ROOT / "fusec")]


def model_names() -> set[str]:
    """Every model type that the installed transformers has a folder for, and the vendors."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    folders = {path.name for path in (Path(spec.origin).parent / "models").iterdir() if path.is_dir()}
    assert len(folders) > 300
    # `name3_text` and `name_v2` name the family too.
    stems = {re.sub(r"(_?v?\d+|_text|_moe|_vl|_next)+$", "", folder) for folder in folders}
    names = {name for name in folders | stems | VENDORS if len(name) > 3 and not name.startswith("__")}
    return names - ORDINARY_WORDS.keys()


def mentions(text: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """Line number and name of each whole-word mention, ``CamelCase`` and ``snake_case`` parts being words."""
    alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    word = re.compile(rf"(?<![a-z])(?:{alternatives})(?![a-z])")
    for number, line in enumerate(text.splitlines(), 1):
        # A border between words where CamelCase has one.
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", line).lower()
        for match in word.finditer(spaced):
            yield number, match[0]


def test_the_core_names_no_model_and_no_vendor() -> None:
    names = model_names()
    found = []
    for path in core():
        own = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        for name in GIVEN_NAMES.get(own, ()):
            text = text.replace(f'"{name}"', '""')
        found += [f"{own}:{line}: {name}" for line, name in mentions(text, names)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line", ["class LlamaPort:", "if model_type == 'qwen3':", "# as in Mistral", "mixtral_rows = 3", "for DeepseekV3"]
)
def test_a_mention_is_seen(line: str) -> None:
    assert list(mentions(line, model_names()))


@pytest.mark.parametrize("line", ["optimum = 1", "option", "AutoConfig", "a gitignored file", "metadata", "barter"])
def test_ordinary_words_are_no_mention(line: str) -> None:
    assert not list(mentions(line, model_names()))


MACHINE = re.compile(
    r"(?<![\w.])/(?:home|root|work|Users|mnt|opt)/[\w.-]+"  # a path of one machine
    r"|(?<![=\w.])\d{1,3}(?:\.\d{1,3}){3}\b(?<!127\.0\.0\.1)(?<!0\.0\.0\.0)"  # an address
    r"|https?://(?!www\.apache\.org/licenses/)[\w.-]+",  # a host
)
# Hosts that are documentation of where a reader can look.
ALLOWED_HOSTS = re.compile(
    r"https?://(?:docs\.vllm\.ai|github\.com/vllm-project|localhost|127\.0\.0\.1|example\.(?:com|org))"
)


def test_no_file_names_a_machine_or_a_host() -> None:
    found = []
    for path in tracked():
        if path.name == "LICENSE" or path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {match[0]}"
            for number, line in enumerate(text.splitlines(), 1)
            for match in MACHINE.finditer(line)
            if not ALLOWED_HOSTS.match(match[0])
        ]
    assert not found, "\n".join(found)


def test_no_file_carries_a_licence_header_of_others() -> None:
    """Everything here was written for this project: LICENSE covers it, and the only headers are our own,
    on the example models, where a port has to carry them over."""
    found = []
    for path in tracked(".py"):
        holders = re.findall(r"^# *Copyright.*$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if path.is_relative_to(ROOT / "examples") and path.parent != ROOT / "examples":
            if not any("The fusec authors" in line for line in holders):
                found.append(f"{path.relative_to(ROOT)}: no header")
        elif path.is_relative_to(ROOT / "tests" / "cases"):
            continue
        found += [f"{path.relative_to(ROOT)}: {line}" for line in holders if "The fusec authors" not in line]
    assert not found, "\n".join(found)


# Who builds on whom. It is the order of the pipeline, but that configure runs on graph's evaluator. Facts flow down
# this list: a stage imports what stands above it, never what stands below. `target` is the engine's side, which all
# may ask. `pipeline` composes the stages above it, and the last three use it.
ORDER = (
    "diagnostics", "target", "read", "graph", "configure", "match", "plan", "rewrite", "emit", "pipeline",
    "verify", "bench", "review", "cli",
)  # fmt: skip

# The arrows that point the other way, each for a reason.
AGAINST_THE_ORDER = {
    ("pipeline", "review"): "--stop-after prints a stage, and how facts are printed is review's",
    ("emit", "verify"): "verify's harness is copied into the package: to emit it is a list of files, not code",
}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each part of fusec that a file imports, inside functions too.

    A stage's ``types.py`` holds the facts that pass between stages, so any stage may name them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [f"fusec.{alias.name}" for alias in node.names] if node.module == "fusec" else [node.module or ""]
        else:
            continue
        for module in modules:
            parts = module.split(".")
            if parts[0] == "fusec" and len(parts) > 1 and parts[2:3] != ["types"]:
                yield node.lineno, parts[1]


def part_of(path: Path) -> str:
    return path.relative_to(ROOT / "fusec").parts[0].removesuffix(".py")


def test_arrows_between_folders_point_one_way() -> None:
    found = []
    for path in core():
        own = part_of(path)
        if own in ("__init__", "__main__"):
            continue
        for line, other in imports(path):
            if other in (own, "__version__") or (own, other) in AGAINST_THE_ORDER:
                continue
            if other not in ORDER or own not in ORDER or ORDER.index(other) > ORDER.index(own):
                found.append(f"{path.relative_to(ROOT)}:{line}: {own} imports {other}")
    assert not found, "\n".join(found)


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in core()
        if (tree := ast.parse(path.read_text(encoding="utf-8"))).body and ast.get_docstring(tree) is None
    ]
    assert not silent


def test_the_emitted_names_of_the_engine_stay_in_one_place() -> None:
    """Only fusec/target/ imports the engine, and verify and bench, which run it."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in core()
        if part_of(path) not in ("target", "verify", "bench")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Import) and any(a.name.split(".")[0] in ("vllm", "torch") for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("vllm", "torch"))
    ]
    assert not found


def test_the_pinned_list_satisfies_the_project() -> None:
    """One list of versions: it holds every dependency that pyproject.toml asks for, at a version that it allows."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "requirements" / "cpu.txt").read_text(encoding="utf-8").splitlines()
    pins = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            assert version, f"{line} is not pinned"
            pins[canonicalize_name(name)] = version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["cpu"],
    ]
    for requirement in map(Requirement, wanted):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement} is not in the list"
        assert requirement.specifier.contains(pin), f"{requirement} is pinned to {pin}"
