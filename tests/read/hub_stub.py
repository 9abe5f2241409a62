"""A stand-in for the Hub on 127.0.0.1: repositories as dictionaries of files, and the Hub's own error codes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """``repos``: id -> file name -> content; ``gated`` ids need the token ``good``; ``asked``: requests served."""

    repos: dict[str, dict[str, bytes]]
    gated: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    endpoint: str = ""


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: ClassVar[Hub]

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        parts = [unquote(p) for p in urlsplit(self.path).path.strip("/").split("/")]
        repo, rest = "/".join(parts[:2]), parts[2:]
        self.state.asked.append(f"{self.command} {self.path}")
        if repo in self.state.failing:
            return self._error(500, "")
        if repo not in self.state.repos:
            return self._error(401, "RepoNotFound")
        if repo in self.state.gated and self.headers.get("Authorization") != "Bearer good":
            return self._error(403, "GatedRepo")
        if len(rest) != 3 or rest[0] != "resolve":
            return self._error(404, "EntryNotFound")
        if rest[1] not in ("main", COMMIT):
            return self._error(404, "RevisionNotFound")
        content = self.state.repos[repo].get(rest[2])
        if content is None:
            return self._error(404, "EntryNotFound")
        first, last = 0, len(content) - 1
        ranged = self.headers.get("Range", "")
        if ranged.startswith("bytes="):
            low, _, high = ranged.removeprefix("bytes=").partition("-")
            first, last = int(low), min(int(high or last), last)
        piece = content[first : last + 1]
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(len(piece)))
        self.send_header("ETag", f'"{hash(content) & (2**64 - 1):016x}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if ranged:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        if body:
            self.wfile.write(piece)
        return None

    def _error(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
