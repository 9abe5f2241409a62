"""Packages of a port that is written by hand, whole or with a fault put in by substitution of its text."""

from pathlib import Path

SOURCE = Path(__file__).parent / "dense.py"
PYPROJECT = """\
[project]
name = "{package}"
version = "0.1"
[project.entry-points."vllm.general_plugins"]
{package} = "{package}:register"
"""
REGISTER = """\
def register():
    from vllm import ModelRegistry

    ModelRegistry.register_model("{architecture}", "{package}.modeling:DenseForCausalLM")
"""


def write_port(folder: Path, architecture: str, fault: tuple[str, str] | None = None) -> Path:
    """A package folder whose port serves ``architecture``; ``fault`` replaces one text of the port by another."""
    package = "dense_port"
    text = SOURCE.read_text()
    if fault:
        assert text.count(fault[0]) == 1, f"the port has {text.count(fault[0])} times {fault[0]!r}"
        text = text.replace(*fault)
    (folder / package).mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT.format(package=package))
    (folder / package / "__init__.py").write_text(REGISTER.format(package=package, architecture=architecture))
    (folder / package / "modeling.py").write_text(text)
    return folder
