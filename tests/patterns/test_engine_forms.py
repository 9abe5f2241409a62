"""Every shipped pattern's reference computes what its engine layer computes, in float32 and in bfloat16."""

from __future__ import annotations

import pytest

from fusec.match.patterns import load_patterns
from fusec.verify.patterns import check_patterns

# The two whose replacement is more than a layer; each file says why.
WITHOUT_A_LAYER = {"attention/causal", "model/decoder"}


@pytest.mark.engine
def test_the_shipped_references_equal_their_engine_forms() -> None:
    checks = {check.name: check for check in check_patterns(load_patterns())}
    assert {name for name, check in checks.items() if check.status == "untested"} == WITHOUT_A_LAYER
    assert not {name: check.detail or check.differences for name, check in checks.items() if check.status == "failed"}
