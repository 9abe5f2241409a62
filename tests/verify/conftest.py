"""One session of the harness for all tests of this folder: the engine is imported once."""

from collections.abc import Iterator

import pytest

from fusec.verify.harness import Session, session


@pytest.fixture(scope="session")
def proofs() -> Iterator[Session]:
    with session() as opened:
        yield opened
