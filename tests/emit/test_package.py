"""The files of an emitted package: which there are, that they are valid, that the same facts give the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fusec.configure.types import Config
from fusec.diagnostics import FusecError
from fusec.emit import emit_package, package_files, read_lock
from fusec.plan.types import FoldedCheck
from fusec.read.types import Source

ROOT = Path(__file__).resolve().parents[2]


def test_the_layout(facts, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    emitted = emit_package(*facts(), out)
    on_disk = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert list(emitted.files) == on_disk
    assert emitted.package == "toy_port"
    assert {
        ".fusec/generated/tests/test_port.py",
        ".fusec/generated/toy_port/__init__.py",
        ".fusec/generated/toy_port/modeling_toy.py",
        ".fusec/source/configuration_toy.py",
        ".fusec/source/modeling_toy.py",
        "README.md",
        "fusec.lock",
        "pyproject.toml",
        "tests/harness/__init__.py",
        "tests/test_port.py",
        "toy_port/__init__.py",
        "toy_port/_checks.py",
        "toy_port/_registry.py",
        "toy_port/modeling_toy.py",
    } <= set(on_disk)
    assert (out / "toy_port/modeling_toy.py").read_text() == facts().port.modeling
    assert (out / ".fusec/source/modeling_toy.py").read_text() == "A = 1\n"
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_the_dry_run_is_what_is_written(facts, tmp_path: Path) -> None:
    planned = package_files(*facts())
    emit_package(*facts(), tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in planned.files} == dict(planned.files)


def test_every_digest_in_the_lock_is_right(facts) -> None:
    files = package_files(*facts()).files
    lock = json.loads(files["fusec.lock"])
    assert lock["files"] == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "fusec.lock"
    }


def test_the_lock_comes_back_as_it_was_written(facts, tmp_path: Path) -> None:
    checks = (FoldedCheck("config.hidden_act", "silu", "fused"), FoldedCheck("config.eps", 1e-06, "folded"))
    made = facts(checks=checks, revision="abc123", remote_code=True)
    emit_package(*made, tmp_path / "out", package_name="my_toy")
    lock = read_lock(tmp_path / "out")
    assert (lock.package, lock.architecture, lock.model_type) == ("my_toy", "ToyForCausalLM", "toy")
    assert lock.modeling_file == "my_toy/modeling_toy.py"
    assert (tmp_path / "out" / lock.modeling.file).read_text() == made.checkpoint.modeling.text
    assert lock.modeling.sha256 == made.checkpoint.modeling.sha256
    assert (lock.checks, lock.plan, lock.changes) == (checks, made.plan, made.port.changes)
    assert (lock.transformers, lock.revision, lock.remote_code) == ("5.19.0", "abc123", True)
    assert lock.patterns == {"linear/qkv": "ab" * 32}
    assert lock.config == made.checkpoint.config


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"lock_version": 99}', '{"lock_version": 1, "package": 3}'])
def test_a_lock_that_cannot_be_read_is_said(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "fusec.lock").write_text(content)
    with pytest.raises(FusecError, match=r"fusec\.lock could not be read") as caught:
        read_lock(tmp_path)
    assert caught.value.exit_status == 2


def test_no_path_of_this_machine_gets_in(facts, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "my-toy"
    config = {"model_type": "toy", "architectures": ["ToyForCausalLM"], "_name_or_path": str(folder)}
    made = facts(model=f"{folder}/", folder=folder, config=config)
    files = package_files(*made).files
    assert [name for name, content in files.items() if str(tmp_path).encode() in content] == []
    assert json.loads(files["fusec.lock"])["model"] == "my-toy"


def test_the_same_facts_give_the_same_bytes_in_another_process(facts, tmp_path: Path) -> None:
    """Another hash seed, another working folder, another day."""
    program = (
        "import sys, hashlib, runpy; facts = runpy.run_path(sys.argv[1])['make_facts']; "
        "from fusec.emit import package_files; "
        "[print(n, hashlib.sha256(c).hexdigest()) for n, c in package_files(*facts()).files.items()]"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT), "TZ": "Asia/Tokyo", "HOME": str(tmp_path)}
    conftest = Path(__file__).parent / "conftest.py"
    done = subprocess.run(
        [sys.executable, "-c", program, str(conftest)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    here = [f"{n} {hashlib.sha256(c).hexdigest()}" for n, c in package_files(*facts()).files.items()]
    assert done.stdout.splitlines() == here


def test_emitting_imports_none_of_the_heavy_libraries(tmp_path: Path) -> None:
    program = (
        "import sys, runpy; facts = runpy.run_path(sys.argv[1])['make_facts']; from fusec.emit import emit_package; "
        "emit_package(*facts(), __import__('pathlib').Path(sys.argv[2])); "
        "print([m for m in ('torch', 'transformers', 'vllm', 'numpy') if m in sys.modules])"
    )
    conftest = Path(__file__).parent / "conftest.py"
    done = subprocess.run(
        [sys.executable, "-c", program.replace("import runpy", ""), str(conftest), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_the_project_file(facts) -> None:
    licensed = facts()
    header = '# Licensed under the Apache License, Version 2.0 (the "License");\n'
    licensed = replace(licensed, port=replace(licensed.port, modeling=header + licensed.port.modeling))
    project = tomllib.loads(package_files(*licensed, package_name="My_toy").files["pyproject.toml"].decode())["project"]
    assert project["name"] == "my-toy"
    assert project["entry-points"] == {"vllm.general_plugins": {"My_toy": "My_toy:register"}}
    assert project["dependencies"] == []  # and never the engine's distribution
    assert project["license"] == "Apache-2.0"
    plain = tomllib.loads(package_files(*facts()).files["pyproject.toml"].decode())["project"]
    assert "license" not in plain


def test_the_readme_tells_what_was_done(facts) -> None:
    made = facts(checks=(FoldedCheck("config.hidden_act", "silu", "the activation is fused with the gate"),))
    text = package_files(*made).files["README.md"].decode()
    assert "| `ToyLayer` | `linear/qkv` | q, k and v in one projection | 20-24 |" in text
    assert "- `ToyModel`, 40: the cache: the engine has its own" in text
    assert "the loop over layers" not in text
    assert "can work for the config it was made from: 1, 2." in text
    assert "  - 2 heads cannot be split over 4 ranks." in text
    assert "`config.hidden_act` is `'silu'`: the activation is fused with the gate" in text
    assert "    vllm serve MODEL\n" in text  # a model type is nothing to serve


def test_the_readme_names_the_checkpoint(facts) -> None:
    text = package_files(*facts(model="somebody/toy-1b")).files["README.md"].decode()
    assert "    vllm serve somebody/toy-1b\n" in text


def test_what_is_generated_is_clean_python(facts, tmp_path: Path) -> None:
    checks = (
        FoldedCheck("getattr(config, 'x', None) in ['a', \"it's\"]", True, "a reason with \"quotes\" and 'others'"),
        FoldedCheck("len(config.layer_types)", 4, "b"),
    )
    out = emit_package(*facts(checks=checks), tmp_path / "out").out
    generated = [out / "toy_port" / name for name in ("__init__.py", "_checks.py", "_registry.py")]
    command = [sys.executable, "-m", "ruff"]
    for arguments in (["check", "--isolated"], ["format", "--isolated", "--line-length=120", "--check"]):
        done = subprocess.run(
            [*command, *arguments, *generated, out / "tests" / "test_port.py"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    for arguments in (["check", "--no-cache"], ["format", "--no-cache", "--check"]):  # by the package's own settings
        done = subprocess.run([*command, *arguments, "."], cwd=out, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_running_the_checkpoints_code_is_asked_for(facts) -> None:
    with_code = package_files(*facts(remote_code=True)).files["README.md"].decode()
    assert "FUSEC_TRUST_REMOTE_CODE=1 pytest" in with_code
    assert "FUSEC_TRUST_REMOTE_CODE" not in package_files(*facts()).files["README.md"].decode()


def test_one_file_that_holds_model_and_configuration_is_kept_once(facts) -> None:
    both = Source("modeling_toy.py", "modeling_toy", "C = 1\n", "checkpoint")
    lock = json.loads(package_files(*facts(modeling=both, configuration=both)).files["fusec.lock"])
    assert lock["modeling"]["file"] == lock["configuration"]["file"] == ".fusec/source/modeling_toy.py"


def test_two_sources_of_one_file_name_are_both_kept(facts) -> None:
    one, two = Source("a/x.py", "a.x", "C = 1\n", "file"), Source("b/x.py", "b.x", "D = 1\n", "file")
    files = package_files(*facts(modeling=one, configuration=two)).files
    lock = json.loads(files["fusec.lock"])
    assert files[lock["modeling"]["file"]] == b"C = 1\n"
    assert files[lock["configuration"]["file"]] == b"D = 1\n"


def test_the_config_is_not_needed_as_values(facts) -> None:
    """What the package keeps is config.json as it was read, not fusec's view of it."""
    made = replace(facts(), config=Config("ToyConfig", "models.toy", {"hidden_act": "gelu"}, {}))
    assert json.loads(package_files(*made).files["fusec.lock"])["config"]["hidden_act"] == "silu"
