"""`lethe reproduce matrix-mechanisms`: published numbers come out again, and no mechanism is below a published bound."""

import math

import numpy as np
import pytest

from lethe.calculus.correlated.matrices import as_matrix, binary_tree, square_root
from lethe_experiments import Reproduction
from lethe_experiments.matrix_mechanisms import largest_at_least, largest_error, matrix_mechanisms, mean_at_least, mean_error


@pytest.fixture(scope="module")
def result() -> Reproduction:
    return matrix_mechanisms(sizes=(16, 64))


def test_published_numbers_come_out_again(result: Reproduction) -> None:
    """Closed forms to rounding; JAX Privacy's to the ends of two searches, .3 % apart for four passes."""
    compared = {"closed form": 0, "computed": 0}
    for row in result.records():
        said = row["published_as"] or ""
        if said.startswith("closed form"):
            assert row["error"] == pytest.approx(row["published"], rel=1e-12)
            compared["closed form"] += 1
        if said.startswith("computed"):
            assert row["error"] == pytest.approx(row["published"], rel=1e-6 if row["passes"] == 1 else 4e-3)
            compared["computed"] += 1
    assert compared == {"closed form": 6, "computed": 4}


def test_the_best_there_is(result: Reproduction) -> None:
    """Between the published bounds; in the mean the asymptote comes nearer with n."""
    dense = {(row["steps"], row["measure"]): row for row in result.records() if row["mechanism"] == "dense" and row["passes"] == 1}
    above = []
    for steps in (16, 64):
        assert dense[steps, "max"]["error"] < dense[steps, "max"]["published"] == pytest.approx(1 + math.log(steps) / math.pi)
        above.append(dense[steps, "mean"]["error"] - dense[steps, "mean"]["published"])
    assert 0.0 < above[1] < above[0] / 2


def test_nothing_is_below_what_nothing_can_be_below(result: Reproduction) -> None:
    rows = [row for row in result.records() if row["at_least"] is not None]
    assert all(row["error"] >= row["at_least"] for row in rows)
    assert min(row["error"] / row["at_least"] for row in rows) < 1.04
    for steps in (1, 2, 9, 40):
        triangle = np.tril(np.ones((steps, steps)))
        assert mean_at_least(steps) == pytest.approx(np.linalg.svd(triangle, compute_uv=False).sum() / steps, rel=1e-12)
        assert largest_at_least(steps) <= largest_error(square_root(steps), steps)


def test_the_errors_are_those_of_the_inverse() -> None:
    for strategy, passes in ((square_root(12), 1), (square_root(12, 3), 3), (binary_tree(12), 4)):
        matrix = as_matrix(strategy)
        slots = 12 // passes
        norms = [np.linalg.norm(matrix[:, slot::slots].sum(axis=1)) for slot in range(slots)]  # no entry is negative
        rows = np.linalg.norm(np.tril(np.ones((12, 12))) @ np.linalg.inv(matrix), axis=1)
        assert largest_error(strategy, slots) == pytest.approx(max(norms) * rows.max(), rel=1e-9)
        assert mean_error(strategy, slots) == pytest.approx(max(norms) * np.sqrt(np.mean(rows**2)), rel=1e-9)
