"""A number that depends on how many tokens there are never ends up in a port, whatever way it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusec

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tinymodel"
HEAD = "        logits = self.lm_head(outputs.last_hidden_state[:, kept, :])\n"

WAYS = {
    "as it is": "logits = logits * n",
    "calculated": "logits = logits * (n // 2 + 1)",
    "the smaller": "logits = logits * min(n, 4)",
    "of the shape": "logits = logits * max(logits.shape)",
    "length of a list": "logits = logits * len([0] * n)",
    "sum of a list": "logits = logits * sum([1 for _ in [0] * n])",
    "length of a text": 'logits = logits * len("x" * n)',
    "formatted": 'logits = logits * int(f"{n}")',
    "printed": "logits = logits * len(str(n))",
    "an index": "logits = logits * [1, 2, 3, 4, 5, 6, 7][n]",
    "a slice": "logits = logits * len(list(range(10))[n:])",
    "a key": "logits = logits * {5: 2}.get(n, 1)",
    "a key of a display": "logits = logits * {n: 3}.get(5, 1)",
    "a comparison": "logits = logits * (n > 4)",
    "a condition": "logits = logits * (2 if n in (5, 6) else 1)",
    "a comparison of shapes": "logits = logits * (2 if logits.shape[:2] == (2, 5) else 1)",
    "a loop": "for i in range(n): logits = logits * 2",
    "a loop over a list": 'for _ in zip([1] * n, "abcdefgh"): logits = logits * 2',
    "a loop that counts down": "while n: n, logits = n - 1, logits * 2",
    "a root": "logits = logits * n**0.5",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_tokens_is_refused(way: str, tmp_path: Path) -> None:
    added = f"        n = logits.shape[1]\n        {WAYS[way]}\n"
    for path in EXAMPLE.glob("*.*"):
        text = path.read_text(encoding="utf-8").replace(HEAD, HEAD + added)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    assert added in (tmp_path / "modeling_tinymodel.py").read_text(encoding="utf-8")
    with pytest.raises(fusec.FusecError) as refusal:
        fusec.convert(str(tmp_path), dry_run=True)
    (diagnostic,) = refusal.value.diagnostics
    assert diagnostic.code in ("FUS304", "FUS401")
