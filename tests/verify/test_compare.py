"""Comparing distributions: where they differ most, when tokens may part, and what a divergence is."""

import numpy as np
import pytest

from fusec.verify.harness.compare import Run, comparable, difference, float32_bar, mean_divergence


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.fixture
def run() -> Run:
    logits = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32) * 2
    logprobs = log_softmax(logits)
    return Run(4, logprobs, tuple(logprobs[3:].argmax(-1).tolist()))


def changed(run: Run, row: int, column: int, by: float) -> Run:
    logprobs = run.logprobs.copy()
    logprobs[row, column] += by
    return Run(run.prompt, logprobs, run.tokens)


def test_equal_runs(run: Run) -> None:
    found = difference([run], [run], 1e-4, [0])
    assert (found.largest, found.token_problem, found.tokens_agree) == (0.0, None, True)
    assert mean_divergence([run], [run], [0])[0] == 0.0


@pytest.mark.parametrize(("row", "where"), [(2, "prompt position 2 of 4"), (5, "decode step 2 (position 5)")])
def test_the_largest_difference_and_its_place(run: Run, row: int, where: str) -> None:
    found = difference([run, run], [run, changed(run, row, 1, 0.25)], 1e-4, [0, 7])
    assert found.largest == pytest.approx(0.25, rel=1e-5)
    assert found.where == f"sequence 7, {where}"


def test_a_nan_is_an_infinite_difference(run: Run) -> None:
    assert difference([run], [changed(run, 1, 1, np.nan)], 1e-4, [0]).largest == np.inf
    assert mean_divergence([run], [changed(run, 1, 1, np.nan)], [0])[0] == np.inf


def test_equal_infinities_do_not_differ(run: Run) -> None:
    masked = changed(run, 1, 1, -np.inf)
    assert difference([masked], [masked], 1e-4, [0]).largest == 0.0
    assert mean_divergence([masked], [masked], [0])[0] == 0.0
    assert difference([run], [masked], 1e-4, [0]).largest == np.inf


def parted(run: Run, margin: float) -> tuple[Run, Run]:
    """The reference with two tokens ``margin`` apart at decode step 1, and a port that took the other one; what comes
    after is about another text and so differs."""
    row = run.prompt
    logprobs = run.logprobs.copy()
    best = run.tokens[1]
    other = (best + 1) % logprobs.shape[1]
    logprobs[row, other] = logprobs[row, best] - margin
    theirs = logprobs.copy()
    theirs[row + 1 :] += 1.0
    tokens = (run.tokens[0], other, *run.tokens[2:])
    return Run(run.prompt, logprobs, run.tokens), Run(run.prompt, theirs, tokens)


def test_tokens_may_part_at_a_near_tie(run: Run) -> None:
    reference, port = parted(run, 1.5e-4)
    assert comparable(reference, port) == run.prompt + 1
    found = difference([reference], [port], 1e-4, [0])
    assert found.largest == 0.0
    assert found.token_problem is None
    assert not found.tokens_agree


def test_tokens_may_not_part_elsewhere(run: Run) -> None:
    reference, port = parted(run, 0.5)
    found = difference([reference], [port], 1e-4, [0])
    assert found.token_problem is not None
    assert "decode step 1" in found.token_problem


def test_rows_that_did_not_come_back(run: Run) -> None:
    short = Run(run.prompt, run.logprobs[:2], ())
    assert difference([run], [short], 1e-4, [0]).largest == np.inf


def test_mean_divergence(run: Run) -> None:
    flat = Run(run.prompt, log_softmax(np.zeros_like(run.logprobs)), run.tokens)
    expected = (np.exp(run.logprobs) * (run.logprobs - flat.logprobs)).sum(-1)
    mean, where = mean_divergence([run], [flat], [3])
    assert mean == pytest.approx(expected.mean(), rel=1e-5)
    assert where == f"sequence 3, {run.place(int(expected.argmax()))}"


def test_the_bar() -> None:
    assert float32_bar(1e-6) == 1e-4
    assert float32_bar(1e-4) == pytest.approx(3e-4)
