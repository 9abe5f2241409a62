"""Ports of the six dense families in the real engine, over configurations that cover their axes pair by pair.

One port serves all configurations of its family: it is converted once, from the family's default config, and every
case must give the same text. Each case is then proved against transformers at the float32 bar, with prompts longer
than any window, whole, cut and mixed with decoding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import fusec
from fusec.verify.harness.checks import Request, Session, prove, session
from tests.engine.coverage import ARCHITECTURES, Case, cases
from tests.engine.graph_counts import count_per_layer

pytestmark = pytest.mark.engine
FAMILIES = tuple(ARCHITECTURES)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("ports")
    for family in FAMILIES:
        fusec.convert(family, folder / family)
    return {family: folder / family for family in FAMILIES}


@pytest.fixture(scope="module")
def engine() -> Iterator[Session]:
    with session() as opened:
        yield opened


def modeling(port: Path) -> str:
    lock = json.loads((port / "fusec.lock").read_text(encoding="utf-8"))
    return (port / lock["modeling_file"]).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_case_gives_its_familys_port_and_the_port_matches(
    case: Case, ports: dict[str, Path], engine: Session, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(case.config), encoding="utf-8")
    made = fusec.convert(str(tmp_path), dry_run=True)
    assert made.port is not None
    assert made.port.modeling == modeling(ports[case.model_type])
    outcome = prove(ports[case.model_type], Request(case.config), within=engine)
    assert outcome.passed, outcome.rows
    assert outcome.port.endswith(f".{ARCHITECTURES[case.model_type]}")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_more_operations_per_layer_than_the_engines_own_class(
    family: str, ports: dict[str, Path], tmp_path: Path
) -> None:
    """Compiled at the default settings; against the backend where the engine has no class of its own."""
    config = next(c.config for c in cases() if c.model_type == family and c.levels["rope"].startswith("default"))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    site = tmp_path / "site"
    installed(ports[family], site)
    ours = count_per_layer(model, "port", site=site)
    assert ours.model_class.rpartition(".")[2] == ARCHITECTURES[family]
    assert "_port." in ours.model_class
    theirs = count_per_layer(model, "native")
    if "transformers" in theirs.model_class.rpartition(".")[0].rpartition(".")[2]:
        theirs = count_per_layer(model, "backend")
    assert ours.matmuls <= theirs.matmuls, (ours.functions, theirs.functions)
    assert ours.engine_operators <= theirs.engine_operators, (ours.functions, theirs.functions)


def installed(port: Path, site: Path) -> None:
    """The package and its entry point as pip would leave them in ``site``."""
    lock = json.loads((port / "fusec.lock").read_text(encoding="utf-8"))
    package = lock["package"]
    info = site / f"{package}-1.dist-info"
    info.mkdir(parents=True)
    (site / package).symlink_to(port / package, target_is_directory=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{package} = {package}:register\n", encoding="utf-8"
    )
