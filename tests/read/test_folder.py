"""Checkpoints in a folder: what is read, and every way in which reading is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusec.diagnostics import Diagnostic, EnvironmentProblem, Place
from fusec.read import TensorSpec, installed_library, library, read_checkpoint

Write = Callable[..., str]
Refusal = Callable[..., Diagnostic]
MODELING = "class OwnForCausalLM:\n    pass\n"
CONFIGURATION = "class OwnConfig:\n    model_type = 'own'\n"
AUTO_MAP = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}


# ---------------------------------------------------------------------- what is read


def test_a_class_of_transformers(checkpoint: Write) -> None:
    read = read_checkpoint(checkpoint(hidden_size=64))
    assert (read.architecture, read.model_type, read.config_class) == ("Qwen3ForCausalLM", "qwen3", "Qwen3Config")
    assert read.modeling.name == "transformers/models/qwen3/modeling_qwen3.py"
    assert read.modeling.module == "transformers.models.qwen3.modeling_qwen3"
    assert read.configuration.name == "transformers/models/qwen3/configuration_qwen3.py"
    assert read.modeling.origin == f"transformers {installed_library().version}"
    assert read.config["hidden_size"] == 64
    assert (read.tensors, read.revision, read.remote_code, read.notes) == (None, None, False, ())
    assert not {"torch", "transformers"} & set(sys.modules) or "tests" not in read.modeling.name


def test_no_architectures_in_the_config(checkpoint: Write) -> None:
    assert read_checkpoint(checkpoint({"config.json": {"model_type": "qwen3"}})).architecture == "Qwen3ForCausalLM"


def test_no_model_type_in_the_config(checkpoint: Write) -> None:
    read = read_checkpoint(checkpoint({"config.json": {"architectures": ["Qwen3ForCausalLM"]}}))
    assert read.model_type == "qwen3"


def test_the_architecture_decides(checkpoint: Write) -> None:
    """A class of another folder than the model type's."""
    read = read_checkpoint(checkpoint(architectures=["LlamaForCausalLM"]))
    assert read.modeling.name == "transformers/models/llama/modeling_llama.py"
    assert read.config_class == "Qwen3Config"


def test_a_type_nested_in_another_folder(checkpoint: Write) -> None:
    read = read_checkpoint(checkpoint(model_type="gemma3_text", architectures=["Gemma3ForCausalLM"]))
    assert read.modeling.name == "transformers/models/gemma3/modeling_gemma3.py"
    assert read.config_class == "Gemma3TextConfig"


def test_a_type_that_borrows_a_class(checkpoint: Write) -> None:
    read = read_checkpoint(checkpoint(model_type="gpt-sw3", architectures=["GPT2LMHeadModel"]))
    assert (read.modeling.name, read.config_class) == ("transformers/models/gpt2/modeling_gpt2.py", "GPT2Config")


def test_a_config_that_autoconfig_loads_as_another_type(checkpoint: Write) -> None:
    keys = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "layer_types": ["full_attention"]}
    read = read_checkpoint(checkpoint(**keys))
    assert (read.model_type, read.architecture) == ("ministral", "MinistralForCausalLM")
    assert read.modeling.name == "transformers/models/ministral/modeling_ministral.py"
    assert len(read.notes) == 1
    assert read_checkpoint(checkpoint(**{**keys, "layer_types": ["full_attention"], "x": 1})).model_type == "ministral"


def test_tensors_of_one_file(checkpoint: Write, safetensors: Callable[..., bytes]) -> None:
    read = read_checkpoint(checkpoint({"model.safetensors": safetensors(a=[2, 3], b=[4])}))
    assert read.tensors == {"a": TensorSpec((2, 3), "F32"), "b": TensorSpec((4,), "F32")}


def test_tensors_of_an_index(checkpoint: Write, safetensors: Callable[..., bytes]) -> None:
    """Shards that are at hand give shapes; the other names are known all the same."""
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files = {"model.safetensors.index.json": index, "model-1.safetensors": safetensors(a=[2], stray=[1])}
    read = read_checkpoint(checkpoint(files))
    assert read.tensors == {"a": TensorSpec((2,), "F32"), "b": TensorSpec(None, None)}


# ---------------------------------------------------------------------- a checkpoint's own code


def _own(**more: Any) -> dict[str, Any]:
    return {"modeling_own.py": MODELING, "configuration_own.py": CONFIGURATION, **more}


def test_own_code(checkpoint: Write) -> None:
    files = _own(**{"helpers.py": "X = 1\n"})
    read = read_checkpoint(checkpoint(files, model_type="own", architectures=["OwnForCausalLM"], auto_map=AUTO_MAP))
    assert read.remote_code
    assert (read.modeling.name, read.modeling.origin) == ("modeling_own.py", "checkpoint")
    assert (read.configuration.name, read.config_class) == ("configuration_own.py", "OwnConfig")
    package = read.modeling.module.rpartition(".")[0]
    found = read.library.find(f"{package}.helpers")
    assert found is not None
    assert found.text == "X = 1\n"
    assert read.library.find("transformers.models.qwen3.modeling_qwen3") is not None
    assert read.library.find(f"{package}.absent") is None


def test_own_code_is_preferred_to_the_library(checkpoint: Write) -> None:
    files = {"modeling_qwen3.py": "class Qwen3ForCausalLM:\n    pass\n"}
    read = read_checkpoint(checkpoint(files, auto_map={"AutoModelForCausalLM": "modeling_qwen3.Qwen3ForCausalLM"}))
    assert read.remote_code
    assert read.configuration.name == "transformers/models/qwen3/configuration_qwen3.py"


def test_own_code_that_is_absent_falls_back_with_a_note(checkpoint: Write) -> None:
    read = read_checkpoint(checkpoint(auto_map={"AutoModelForCausalLM": "modeling_qwen3.Qwen3ForCausalLM"}))
    assert not read.remote_code
    assert len(read.notes) == 1


def test_own_code_that_is_absent(checkpoint: Write, refusal: Refusal) -> None:
    found = refusal(checkpoint(model_type="own", architectures=["OwnForCausalLM"], auto_map=AUTO_MAP))
    assert found.code == "FUS104"
    assert "modeling_own.py" in found.message


def test_own_code_of_an_encoder_decoder(checkpoint: Write, refusal: Refusal) -> None:
    keys = {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP, "is_encoder_decoder": True}
    assert refusal(checkpoint(_own(), **keys)).code == "FUS103"


def test_own_configuration_that_is_absent(checkpoint: Write, refusal: Refusal) -> None:
    keys = {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP}
    found = refusal(checkpoint({"modeling_own.py": MODELING}, **keys))
    assert found.code == "FUS104"
    assert "configuration_own.py" in found.message


@pytest.mark.parametrize(
    "reference", ["../modeling.Own", "a/b.Own", "modeling", "m.C; import os", "", 7, "x--y.Z", "..--m.C"]
)
def test_auto_map_names_are_checked(reference: object, checkpoint: Write, refusal: Refusal) -> None:
    found = refusal(checkpoint(_own(), auto_map={"AutoModelForCausalLM": reference}))
    assert found.code == "FUS102"


# ---------------------------------------------------------------------- refusals


def test_no_such_folder(refusal: Refusal, tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "absent")).code == "FUS101"


def test_a_file_is_not_a_folder(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert refusal(str(tmp_path / "config.json")).code == "FUS101"


def test_no_config(refusal: Refusal, tmp_path: Path) -> None:
    assert refusal(str(tmp_path)).code == "FUS102"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n  "a": 1,\n  "b" 2\n}', (3, 7)),
        ("", (1, 1)),
        ("[]", (1, 1)),
        ('{"a": ' + "[" * 100_000, (1, 1)),
        ('{"a": ' + "9" * 5000 + "}", (1, 1)),
        (b'{\n"a": "\xff"}', (2, 1)),
    ],
    ids=["comma", "empty", "list", "deep", "long-number", "not-utf8"],
)
def test_malformed_json(text: str | bytes, place: tuple[int, int], checkpoint: Write, refusal: Refusal) -> None:
    found = refusal(checkpoint({"config.json": text}))
    assert found.code == "FUS102"
    assert found.place == Place("config.json", *place)


def test_a_config_that_is_a_folder(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "config.json").mkdir()
    assert refusal(str(tmp_path)).code == "FUS102"


@pytest.mark.parametrize(
    ("keys", "code", "says"),
    [
        ({"architectures": ["NoSuchForCausalLM"]}, "FUS103", "NoSuchForCausalLM"),
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "FUS103", "not a decoder-only"),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "FUS103", "encoder-decoder"),
        ({"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}, "FUS103", "images"),
        ({"is_encoder_decoder": True}, "FUS103", "encoder-decoder"),
        ({"architectures": ["Qwen3ForCausalLM", "LlamaForCausalLM"]}, "FUS103", "2 architectures"),
        ({"architectures": ['"]\nimport os']}, "FUS103", "not the name of a class"),
        ({"architectures": ["../../x"]}, "FUS103", "not the name of a class"),
        ({"architectures": "Qwen3ForCausalLM"}, "FUS102", "not a list"),
        ({"architectures": [3]}, "FUS102", "not a list"),
        ({"model_type": 3}, "FUS102", "not a string"),
        ({"model_type": "../../x", "architectures": ["Qwen3ForCausalLM"]}, "", ""),
        ({"model_type": "no-such-type", "architectures": []}, "FUS103", "no architecture"),
    ],
)
def test_configs_that_cannot_be_converted(
    keys: dict[str, Any], code: str, says: str, checkpoint: Write, refusal: Refusal
) -> None:
    if not code:  # an unknown type beside a known class: its configuration is the one beside the class, or none
        assert refusal(checkpoint(**keys)).code == "FUS104"
        return
    found = refusal(checkpoint(**keys))
    assert (found.code, found.hint is not None or code == "FUS102" or says == "not the name of a class") == (code, True)
    assert says in found.message
    assert "\n" not in found.message


def test_a_repeated_architecture_is_one(checkpoint: Write) -> None:
    assert read_checkpoint(checkpoint(architectures=["Qwen3ForCausalLM"] * 2)).architecture == "Qwen3ForCausalLM"


@pytest.mark.parametrize(
    ("data", "code", "place"),
    [
        ("class OwnForCausalLM:\n    def f(self:\n        pass\n", "FUS105", Place("modeling_own.py", 2, 10)),
        (b"# ok\nclass OwnForCausalLM: x = '\xff'\n", "FUS105", Place("modeling_own.py", 2, 28)),
        (b"class OwnForCausalLM:\n    x = '\x00'\n", "FUS105", None),
        ("class OwnForCausalLM:\n    x = " + "(" * 5000 + ")" * 5000 + "\n", "FUS105", None),
        ("class Other:\n    pass\n", "FUS103", Place("modeling_own.py", 1)),
    ],
    ids=["syntax", "not-utf8", "null-byte", "deep", "no-class"],
)
def test_modeling_files_that_are_not_python(
    data: str | bytes, code: str, place: Place | None, checkpoint: Write, refusal: Refusal
) -> None:
    keys = {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP}
    found = refusal(checkpoint(_own(**{"modeling_own.py": data}), **keys))
    assert found.code == code
    assert found.place is not None
    assert place is None or found.place == place


def test_a_huge_modeling_file(checkpoint: Write, refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "MAX_SOURCE_BYTES", 100)
    keys = {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP}
    assert refusal(checkpoint(_own(**{"modeling_own.py": MODELING + "#" * 200}), **keys)).code == "FUS104"


def test_a_file_of_20000_lines_is_read(checkpoint: Write) -> None:
    text = MODELING + "def f(x):\n    return x + 1\n" * 10_000
    keys = {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": AUTO_MAP}
    assert read_checkpoint(checkpoint(_own(**{"modeling_own.py": text}), **keys)).modeling.text == text


@pytest.mark.parametrize(
    "files",
    [
        {"model.safetensors": b"short"},
        {"model.safetensors": b"\xff" * 16},
        {"model.safetensors": b"\x02\x00\x00\x00\x00\x00\x00\x00[]"},
        {"model.safetensors.index.json": "{"},
        {"model.safetensors.index.json": {}},
        {"model.safetensors.index.json": {"weight_map": {"a": "../../secret.safetensors"}}},
        {"model.safetensors.index.json": {"weight_map": {"a": 1}}},
    ],
    ids=["short", "too-large", "list", "no-json", "no-map", "path", "number"],
)
def test_malformed_tensor_lists(files: dict[str, Any], checkpoint: Write, refusal: Refusal) -> None:
    assert refusal(checkpoint(files)).code == "FUS107"


def test_transformers_is_not_installed(checkpoint: Write, refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    model = checkpoint()
    library.installed_library.cache_clear()
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: None)
    try:
        with pytest.raises(EnvironmentProblem) as caught:
            read_checkpoint(model)
    finally:
        library.installed_library.cache_clear()
    assert caught.value.diagnostics[0].code == "FUS004"
    assert caught.value.exit_status == 3
