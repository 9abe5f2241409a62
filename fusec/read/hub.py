"""The files of a checkpoint on the Hub, fetched one by one through huggingface_hub.

Only ``config.json``, Python files, and the safetensors index or header are ever asked for.
Cache, token, revision, endpoint and offline mode are that library's own.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fusec.diagnostics import Diagnostic, EnvironmentProblem, refuse
from fusec.read.files import INDEX, MAX_CONFIG_BYTES, SINGLE, decode_json, read_bytes, read_header, tensors_of_index
from fusec.read.types import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_.-]{1,96}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_hub_id(model: str) -> bool:
    return _HUB_ID.fullmatch(model) is not None and ".." not in model


class HubFiles:
    """The files of one repository at one commit. ``revision`` becomes the commit once a file was read."""

    def __init__(self, repo: str, revision: str | None, token: str | None) -> None:
        self.repo = repo
        self.revision = revision
        self.token = token

    def read(self, name: str, limit: int) -> bytes | None:
        path = self.fetch(name)
        return None if path is None else read_bytes(path, name, limit)

    def fetch(self, name: str) -> Path | None:
        """The file in the library's cache, ``None`` where the repository has none of this name.

        Raises FusecError FUS101 (no such repository or revision) or FUS106 (gated), and
        EnvironmentProblem FUS106 (not reachable)."""
        import huggingface_hub
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        with self._explained():
            try:
                path = Path(huggingface_hub.hf_hub_download(self.repo, name, revision=self.revision, token=self.token))
            except LocalEntryNotFoundError:
                known = huggingface_hub.try_to_load_from_cache(self.repo, name, revision=self.revision)
                if known is not None and not isinstance(known, str):
                    return None  # the cache knows that the repository has no such file
                if self.revision and _COMMIT.fullmatch(self.revision) and name != "config.json":
                    return None  # not reachable, and what the cache holds of this commit lacks the file
                raise
            except EntryNotFoundError:
                return None
        commit = path.parent.name
        if _COMMIT.fullmatch(commit):
            self.revision = commit
        return path

    def tensors(self) -> dict[str, TensorSpec] | None:
        """Tensor names from the index or, where there is none, with shapes from the single file's header."""
        import huggingface_hub
        from huggingface_hub.errors import (
            EntryNotFoundError,
            LocalEntryNotFoundError,
            OfflineModeIsEnabled,
            SafetensorsParsingError,
        )

        index = self.read(INDEX, MAX_CONFIG_BYTES)
        if index is not None:
            return tensors_of_index(decode_json(index, INDEX, "FUS107"))
        cached = huggingface_hub.try_to_load_from_cache(self.repo, SINGLE, revision=self.revision)
        if isinstance(cached, str):
            return read_header(Path(cached))
        with self._explained():
            try:
                header = huggingface_hub.HfApi().parse_safetensors_file_metadata(
                    self.repo, SINGLE, revision=self.revision, token=self.token
                )
            except (EntryNotFoundError, LocalEntryNotFoundError, OfflineModeIsEnabled):
                return None
            except SafetensorsParsingError as error:
                raise refuse("FUS107", f"{SINGLE} of {self.repo} is not a readable safetensors file: {error}") from None
        return {name: TensorSpec(tuple(info.shape), str(info.dtype)) for name, info in header.tensors.items()}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the library raises into a diagnostic."""
        import httpx
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        try:
            yield
        except GatedRepoError:
            raise refuse(
                "FUS106",
                f"Access to {self.repo} is restricted, and the Hub refused it.",
                hint="Ask for access on the model's page, then log in with `hf auth login` or set HF_TOKEN.",
            ) from None
        except RevisionNotFoundError:
            raise refuse(
                "FUS101",
                f"The Hub has {self.repo}, but not its revision {self.revision!r}.",
                hint="--revision takes a branch, a tag or a commit.",
            ) from None
        except RepositoryNotFoundError:
            raise refuse(
                "FUS101",
                f"The Hub has no model {self.repo}, or it is private.",
                hint="Check the spelling; for a private model log in with `hf auth login` or set HF_TOKEN.",
            ) from None
        except HFValidationError as error:
            raise refuse("FUS101", f"{self.repo!r} is not the id of a model on the Hub: {error}") from None
        except (LocalEntryNotFoundError, OfflineModeIsEnabled):
            raise EnvironmentProblem(
                Diagnostic(
                    "FUS106",
                    f"The Hub could not be reached for {self.repo}, and the cache does not hold it.",
                    hint="Check the network and HF_HUB_OFFLINE, or name a local folder.",
                )
            ) from None
        except HfHubHTTPError as error:
            status = error.response.status_code if error.response is not None else None
            if status in (401, 403):
                raise refuse(
                    "FUS106",
                    f"The Hub refused access to {self.repo} (HTTP {status}).",
                    hint="Log in with `hf auth login` or set HF_TOKEN.",
                ) from None
            raise EnvironmentProblem(
                Diagnostic(
                    "FUS106",
                    f"The Hub answered with an error for {self.repo} (HTTP {status}).",
                    hint="Try again later, or name a local folder.",
                )
            ) from None
        except (httpx.HTTPError, OSError) as error:
            raise EnvironmentProblem(
                Diagnostic(
                    "FUS106",
                    f"The Hub could not be reached for {self.repo}: {type(error).__name__}.",
                    hint="Check the network and HF_HUB_OFFLINE, or name a local folder.",
                )
            ) from None
