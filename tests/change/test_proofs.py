"""What follows an edit, in the real engine against the edited original: several edits at a time.

Each edit of a group shows in the port's text (test_change.py), so that one proof of the group is a proof of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import fusec
from fusec.verify import verify_port
from fusec.verify.harness import Session

from .edits import Edit, read_edits, write_fixture

EDITS = {**read_edits("same_meaning"), **read_edits("other_meaning"), **read_edits("traps")}

GROUPS: dict[str, tuple[str, ...]] = {
    "as_it_is": (),
    "other_text": (
        "branch_turned_around",
        "window_by_statement",
        "activation_by_function",
        "loop_by_index",
        "scale_commuted",
        "index_parameter_renamed",
        "attributes_renamed",
        "outer_attributes_renamed",
        "classes_renamed",
    ),
    "norms_and_scales": (
        "epsilon_scaled",
        "scale_to_the_quarter",
        "scale_at_the_call",
        "gate_and_up_exchanged",
        "embedding_scale_minus_one",
        "logits_scaled_by_more",
        "output_scaled",
        "down_bias",
    ),
    "residuals": (
        "first_residual_again",
        "query_and_key_norm_exchanged",
        "pairs_interleaved",
        "logits_divided",
        "output_bias",
        "approximate_activation",
        "embedding_scaled_by_the_root",
    ),
    "counts_of_heads": ("output_scaled_by_a_head_count",),
    "without_norms": (
        "residual_subtracted",
        "head_norms_gone",
        "final_norm_gone",
        "other_layers_rotated",
        "another_activation",
        "scale_changed_in_place",
        "head_bias",
    ),
    "exchanged": (
        "query_and_key_exchanged_with_as_many_heads",
        "one_norm_for_both",
        "applied_twice",
        "logits_capped",
        "head_input_scaled",
    ),
    "by_layer": (
        "key_and_value_exchanged",
        "epsilon_constant",
        "normed_residual",
        "each_layer_by_its_index",
        "scale_by_a_branch",
        "logits_in_float32",
        "embedding_not_scaled",
    ),
    "more_by_layer": ("second_norm_gone", "each_layer_by_its_scale", "branch_scaled"),
    "powers": ("power_of_a_negative",),
}


def test_everything_that_follows_is_proven() -> None:
    proven = {name for group in GROUPS.values() for name in group}
    followed = {name for name, edit in EDITS.items() if not edit.is_refused and not edit.is_same}
    assert followed <= proven, followed - proven


@pytest.mark.engine
@pytest.mark.parametrize("group", GROUPS)
def test_the_port_follows(group: str, proofs: Session, tmp_path: Path) -> None:
    model = write_fixture(tmp_path / "model", [EDITS[name] for name in GROUPS[group]])
    fusec.convert(str(model), tmp_path / "port")
    outcome = verify_port(tmp_path / "port", trust_remote_code=True, session=proofs)
    assert outcome.passed, outcome.rows


@pytest.mark.engine
def test_a_port_of_the_unchanged_file_does_not_pass_for_a_changed_one(proofs: Session, tmp_path: Path) -> None:
    """The proof can tell: the original is changed behind a finished port, by what is hardest to see."""
    edit: Edit = EDITS["scale_at_the_call"]
    fusec.convert(str(write_fixture(tmp_path / "model")), tmp_path / "port")
    changed = write_fixture(tmp_path / "changed", [edit])
    kept = tmp_path / "port" / ".fusec" / "source" / "modeling_meadow.py"
    assert kept.is_file()
    kept.write_bytes((changed / "modeling_meadow.py").read_bytes())
    outcome = verify_port(tmp_path / "port", trust_remote_code=True, session=proofs)
    assert not outcome.passed
    assert not any(row.passed for row in outcome.rows)
