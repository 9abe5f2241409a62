"""What goes wrong for users, through the real command: a code, a sentence, an exit status, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

LAST_LINES = "        return self.o_proj(output.reshape(batch, length, -1)), weights\n"
SCALING = "            scaling=self.scaling,\n"


def refused(done: Any, code: str, status: int = 1) -> str:
    """Asserts a refusal with ``code`` that left nothing, and gives what it said."""
    assert done.status == status, done.err
    assert code in done.codes, done.err
    assert done.out == ""
    assert not {name for name in done.made if not name.startswith("tmp/hub")}, "something was left behind"
    return done.err


def test_no_such_folder(fusec: Callable[..., Any]) -> None:
    assert "./nowhere" in refused(fusec("convert", "./nowhere", "-o", "out"), "FUS101")


def test_neither_a_folder_nor_a_hub_id_nor_a_model_type(fusec: Callable[..., Any]) -> None:
    assert "no_such_model_type" in refused(fusec("convert", "no_such_model_type", "-o", "out"), "FUS101")


def test_no_config(fusec: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert "config.json" in refused(fusec("convert", "model", "-o", "out"), "FUS102")


def test_malformed_json_is_pointed_at(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(raw_config='{\n  "architectures": ["X"],\n  "hidden_size": 12,,\n}\n')
    err = refused(fusec("convert", "model", "-o", "out"), "FUS102")
    assert "config.json:3:21" in err


@pytest.mark.parametrize("text", ["[]", '"x"', "null", "", "\xff\xfe", '{"architectures": 3}', '{"architectures": []}'])
def test_json_that_is_no_config(text: str, fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(raw_config=text)
    done = fusec("convert", "model", "-o", "out")
    assert done.codes
    assert done.codes[0] in ("FUS102", "FUS103")
    refused(done, done.codes[0])


def test_an_architecture_that_nobody_has(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(config={"architectures": ["ImaginaryForCausalLM"], "model_type": "imaginary", "auto_map": None})
    done = fusec("convert", "model", "-o", "out")
    assert set(done.codes) & {"FUS103", "FUS104"}
    assert "Imaginary" in refused(done, done.codes[0])


def test_an_encoder_decoder(fusec: Callable[..., Any]) -> None:
    refused(fusec("convert", "t5", "-o", "out"), "FUS103")


def test_a_syntax_error(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(edits=[("x = x.float()", "x = x.float((")])
    err = refused(fusec("convert", "model", "-o", "out"), "FUS105")
    assert "modeling_tinymodel.py:" in err
    assert "^" in err


def test_a_branch_on_a_config_key_that_we_do_not_know(
    fusec: Callable[..., Any], checkpoint: Callable[..., Path]
) -> None:
    checkpoint(
        edits=[(LAST_LINES, f"        if self.config.secret_mode:\n            output = output * 2\n{LAST_LINES}")]
    )
    err = refused(fusec("convert", "model", "-o", "out"), "FUS306")
    assert "secret_mode" in err
    assert "if self.config.secret_mode" in err


def test_an_attention_keyword_that_nobody_knows(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(edits=[(SCALING, SCALING + "            gravity=9.81,\n")])
    assert "gravity" in refused(fusec("convert", "model", "-o", "out"), "FUS402")


def test_a_branch_on_a_tensors_value(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(edits=[(LAST_LINES, f"        if output.sum() > 0:\n            output = output * 2\n{LAST_LINES}")])
    refused(fusec("convert", "model", "-o", "out"), "FUS303")


def test_two_architectures(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(config={"architectures": ["TinyModelForCausalLM", "OtherForCausalLM"]})
    done = fusec("convert", "model", "-o", "out")
    refused(done, done.codes[0])
    assert "OtherForCausalLM" in done.err


def test_a_hub_id_without_a_network(fusec: Callable[..., Any]) -> None:
    err = refused(fusec("convert", "someone/some-model", "-o", "out"), "FUS106", 3)
    assert "someone/some-model" in err


@pytest.fixture
def gated_hub() -> Iterator[str]:
    """A local stand-in for the Hub, on which every model is gated; gives its address."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"error": "Access to model someone/gated is restricted."}).encode()
            self.send_response(403)
            self.send_header("X-Error-Code", "GatedRepo")
            self.send_header("X-Error-Message", "Access to model someone/gated is restricted.")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_gated_model(fusec: Callable[..., Any], gated_hub: str) -> None:
    online = {"HF_ENDPOINT": gated_hub, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "", "no_proxy": "127.0.0.1"}
    err = refused(fusec("convert", "someone/gated", "-o", "out", env=online), "FUS106")
    assert "gated" in err
    assert "hint:" in err


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few kilobytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", str(folder)], check=False).returncode == 0
    )
    if not mounted:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(fusec: Callable[..., Any], checkpoint: Callable[..., Path], small_disk: Path) -> None:
    checkpoint()
    err = refused(fusec("convert", "model", "-o", small_disk / "deep" / "out"), "FUS003")
    assert "No space left" in err
    assert list(small_disk.iterdir()) == []


def test_a_read_only_folder(fusec: Callable[..., Any], checkpoint: Callable[..., Path], small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    checkpoint()
    assert "Read-only" in refused(fusec("convert", "model", "-o", small_disk / "out"), "FUS003")


def test_a_file_where_a_folder_is_needed(
    fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint()
    (tmp_path / "file").write_text("mine")
    refused(fusec("convert", "model", "-o", "file/out"), "FUS003")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_existing_folder_is_left_alone(
    fusec: Callable[..., Any], checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    refused(fusec("convert", "model", "-o", "out"), "FUS002", 2)
    # Not a package of ours: not even --force replaces it.
    refused(fusec("convert", "model", "-o", "out", "--force"), "FUS002", 2)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


def test_a_source_that_is_not_there(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    assert "gone.py" in refused(fusec("convert", "model", "-o", "out", "--source", "gone.py"), "FUS104")


def test_a_pattern_folder_that_is_not_there(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    done = fusec("convert", "model", "-o", "out", "--patterns", "gone")
    assert "gone" in refused(done, "FUS001", 2)


@pytest.mark.parametrize("name", ["../x", "a b", "import", "x;y", "torch", 'x"]\nimport os'])
def test_a_package_name_that_cannot_be(name: str, fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint()
    done = fusec("convert", "model", "-o", "out", "--package-name", name)
    refused(done, "FUS601", 2)


def test_diff_and_verify_of_what_is_no_package(fusec: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for command in ("diff", "verify"):
        done = fusec(command, "folder")
        assert done.status in (1, 2)
        assert done.codes
        done = fusec(command, "absent")
        assert done.status in (1, 2)
        assert done.codes


def test_every_error_is_one_json_document_too(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    checkpoint(edits=[("x = x.float()", "x = x.float((")])
    done = fusec("convert", "model", "-o", "out", "--json")
    assert done.status == 1
    assert done.err == ""
    (diagnostic,) = json.loads(done.out)["diagnostics"]
    assert diagnostic["code"] == "FUS105"
    assert diagnostic["place"]["path"].endswith("modeling_tinymodel.py")
    assert diagnostic["place"]["line"] > 1


def test_a_file_of_twenty_thousand_lines(fusec: Callable[..., Any], checkpoint: Callable[..., Path]) -> None:
    """Size alone is no reason to refuse."""
    helpers = "".join(f"def helper_{i}(x):\n    y = x + {i}\n    return y * 2\n\n\n" for i in range(4000))
    checkpoint(edits=[("def turn(x, cos, sin):\n", helpers + "def turn(x, cos, sin):\n")])
    done = fusec("convert", "model", "-o", "out")
    assert done.status == 0, done.err


def test_an_interrupted_conversion_leaves_nothing(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """The signal arrives at each of several moments: while it starts, works, writes."""
    checkpoint()
    before = {path.name for path in tmp_path.iterdir()}
    for delay in (0.05, 0.3, 0.6, 0.9):
        for stop in (signal.SIGINT, signal.SIGTERM):
            running = subprocess.Popen(
                [sys.executable, "-m", "fusec", "convert", "model", "-o", "out", "--quiet"],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
                stderr=subprocess.DEVNULL,
            )
            time.sleep(delay)
            running.send_signal(stop)
            running.wait(60)
            left = {path.name for path in tmp_path.iterdir()} - before
            assert left <= {"out"}, left
            if "out" in left:
                assert running.returncode == 0 or (tmp_path / "out" / "fusec.lock").is_file()
                shutil.rmtree(tmp_path / "out")
