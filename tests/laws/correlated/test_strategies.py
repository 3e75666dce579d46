"""Strategies against closed forms, the optimised ones against those, and `lethe.correlate`, which gives a run the one that suits it."""

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from strategies import COLUMNS, DELTA, random_triangular

import lethe
from lethe.calculus.correlated.matrices import (
    as_matrix,
    binary_tree,
    blt_column,
    inverse_column,
    prefix_sums,
    require_strategy,
    sgd_workload,
    square_root,
)
from lethe.calculus.correlated.optimum import banded_inverse, banded_toeplitz, buffered_toeplitz, dense
from lethe.calculus.correlated.sensitivity import mean_squared_error, noise_squares, sensitivity, separated_sensitivity, slot_sensitivities
from lethe.calculus.correlated.streams import BandedStream, BufferedStream, MatrixStream
from lethe.errors import InputError


def padded(column: np.ndarray, steps: int) -> np.ndarray:
    return np.concatenate((column, np.zeros(steps - len(column))))


def test_the_square_root_has_the_published_entries() -> None:
    column = square_root(50)
    assert column == pytest.approx([math.comb(2 * k, k) / 4**k for k in range(50)], rel=1e-12)
    assert as_matrix(column) @ as_matrix(column) == pytest.approx(np.tril(np.ones((50, 50))), abs=1e-12)
    assert noise_squares(column, prefix_sums(50)) == pytest.approx(np.arange(50, 0, -1) @ column**2, rel=1e-12)


def test_the_error_is_that_of_the_matrices_and_of_one_that_overflows_infinite() -> None:
    """The recursion for Toeplitz columns, and the triangular solve, against an explicit inverse; never nan, which no comparison sees."""
    workload = sgd_workload([0.1 * (1 + step % 3) for step in range(12)], momentum=0.5)
    for column in COLUMNS.values():
        for asked in (prefix_sums(12), sgd_workload(np.ones(12), momentum=0.9), workload):
            explicit = np.linalg.norm(as_matrix(asked) @ np.linalg.inv(as_matrix(column))) ** 2
            assert noise_squares(column, asked) == pytest.approx(explicit, rel=1e-10)
            assert noise_squares(as_matrix(column), asked) == pytest.approx(explicit, rel=1e-10)
    growing = padded(np.array([1.0, 50.0]), 400)
    for strategy in (growing, as_matrix(growing)):
        assert mean_squared_error(strategy, prefix_sums(400), 10) == math.inf


def test_the_workload_of_sgd_is_its_recursion() -> None:
    random = np.random.default_rng(0)
    sizes, gradients = random.uniform(0.1, 1.0, 9), random.normal(size=9)
    for steps, momentum in ((sizes, 0.7), (sizes, 0.0), (np.full(9, 0.3), 0.9)):
        place, velocity, path = 0.0, 0.0, []
        for size, gradient in zip(steps, gradients, strict=True):
            velocity = momentum * velocity + gradient
            place -= size * velocity
            path.append(-place)
        assert as_matrix(sgd_workload(steps, momentum=momentum)) @ gradients == pytest.approx(path, rel=1e-10)


def test_the_tree_releases_what_its_nodes_do() -> None:
    """C^T C is that of the 2T - 1 node sums, so the best unbiased decoding of the nodes has the same error."""
    nodes = np.array(
        [[float(first <= leaf < first + width) for leaf in range(8)] for width in (1, 2, 4, 8) for first in range(0, 8, width)]
    )
    tree = binary_tree(8)
    assert tree.T @ tree == pytest.approx(nodes.T @ nodes, abs=1e-12)
    decoded = np.tril(np.ones((8, 8))) @ np.linalg.pinv(nodes)
    assert noise_squares(tree, prefix_sums(8)) == pytest.approx(np.linalg.norm(decoded) ** 2, rel=1e-10)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("steps", "slots"), [(24, 24), (24, 1), (24, 5), (40, 4), (33, 40)])
def test_optimised_strategies_are_never_worse_than_known_ones(steps: int, slots: int) -> None:
    for workload in (prefix_sums(steps), sgd_workload(np.ones(steps), momentum=0.9)):
        error = {
            name: mean_squared_error(one, workload, slots) for name, one in (("I", square_root(steps, 1)), ("root", square_root(steps)))
        }
        best = dense(steps, slots, workload=workload)
        assert sensitivity(best, slots) == pytest.approx(1.0, rel=1e-9)
        found = mean_squared_error(best, workload, slots)
        assert found <= min(error.values()) * (1 + 1e-9)
        for bands in (1, 2, 5, steps):
            column = padded(banded_toeplitz(steps, slots, bands, workload=workload), steps)
            toeplitz = mean_squared_error(column, workload, slots)
            assert toeplitz <= min(error["I"], mean_squared_error(square_root(steps, bands), workload, slots)) * (1 + 1e-9)
            assert found <= toeplitz * 1.001
        buffers = blt_column(*buffered_toeplitz(steps, slots, 3, workload=workload), steps)
        assert found * 0.999 <= mean_squared_error(buffers, workload, slots) <= error["I"] * (1 + 1e-9)
    # The last Toeplitz strategy has as many bands as steps: the whole square root is among those it may be.
    assert toeplitz <= error["root"] * (1 + 1e-9)


def test_the_column_of_a_banded_inverse_is_rounded_up() -> None:
    """Against its recursion in whole numbers: never below, and above by no more than rounding; no entry is above 1 / d_0."""
    random = np.random.default_rng(0)
    for bands in (1, 2, 3, 6, 10):
        shares = random.dirichlet(np.ones(bands))[1:] * random.choice([0.999, 0.5])
        coefficients = np.append(1.0, -shares) * random.uniform(0.5, 2.0)
        first, *others = (Fraction(float(one)) for one in coefficients)
        exact = [1 / first]
        for step in range(1, 60):
            exact.append(-sum((one * exact[step - back] for back, one in enumerate(others[:step], 1)), Fraction(0)) / first)
        found = inverse_column(coefficients, 60)
        assert all(Fraction(float(one)) >= true for one, true in zip(found, exact, strict=True))
        assert found == pytest.approx([float(one) for one in exact], rel=1e-12, abs=1e-300)
        assert found.max() <= (1 + 1e-12) / coefficients[0]


@pytest.mark.parametrize(("steps", "slots"), [(24, 24), (24, 1), (40, 4), (33, 40)])
def test_the_best_banded_inverse_is_that_of_a_grid(steps: int, slots: int) -> None:
    """Of two coefficients the best share of a fine grid; with more never worse, nor than the published coefficients of the root."""
    for workload in (prefix_sums(steps), sgd_workload(np.ones(steps), momentum=0.9)):

        def error(coefficients: Any, workload: np.ndarray = workload) -> float:
            return mean_squared_error(inverse_column(coefficients, steps), workload, slots)

        errors = [error(banded_inverse(steps, slots, bands, workload=workload)) for bands in (1, 2, 3, 6)]
        grid = min(error([1.0, -share]) for share in np.linspace(0.0, 1.0, 2001))
        assert grid * (1 - 1e-4) <= errors[1] <= grid * (1 + 1e-9)
        assert errors[0] == pytest.approx(mean_squared_error(square_root(steps, 1), workload, slots), rel=1e-9)
        assert all(better <= worse * (1 + 1e-5) for worse, better in itertools.pairwise(errors))
        assert errors[2] <= error([1.0, -0.5, -0.125])
    run = lethe.correlate(make_run(release="all"), "banded_inverse")
    assert run.noise is not None
    assert run.noise.strategy(50) == pytest.approx(inverse_column(banded_inverse(50, 10, 2), 50), rel=1e-12)


def test_a_banded_optimum_keeps_its_bands() -> None:
    best = dense(20, 5, bands=3)
    assert not np.tril(best, -3).any()
    assert mean_squared_error(best, prefix_sums(20), 5) <= mean_squared_error(padded(banded_toeplitz(20, 5, 3), 20), prefix_sums(20), 5)
    assert slot_sensitivities(best, 5) == pytest.approx(np.ones(5), rel=1e-9)


def test_streams_solve_forward() -> None:
    random = np.random.default_rng(1)
    fresh = random.normal(size=(12, 3))
    signed = random_triangular(random, 12, signed=True)
    cases = [
        (BandedStream((2.0, 0.7, 0.1)), np.tril(np.triu(as_matrix(padded(np.array([2.0, 0.7, 0.1]), 12)), -2)), 2),
        (BufferedStream((0.3, 0.1), (0.9, 0.0)), as_matrix(blt_column((0.3, 0.1), (0.9, 0.0), 12)), 2),
        (BandedStream((2.0, -0.7, -0.1), product=True), as_matrix(inverse_column((2.0, -0.7, -0.1), 12)), 2),
        (MatrixStream(signed), signed, 11),
        (MatrixStream(np.tril(np.triu(signed, -3))), np.tril(np.triu(signed, -3)), 3),
        (MatrixStream(np.eye(12)), np.eye(12), 0),
    ]
    for stream, matrix, held in cases:
        made = np.array([stream.next(row) for row in fresh])
        assert matrix @ made == pytest.approx(fresh, abs=1e-9)
        assert stream.step == 12
        assert stream.memory_rows == held
    with pytest.raises(InputError, match="step 13 is beyond"):
        cases[3][0].next(fresh[0])


NO_STRATEGY: tuple[Any, ...] = (
    [],
    [0.0, 1.0],
    [1.0, -0.1],
    [1.0, math.nan],
    [1.0, math.inf],
    [1e-70],
    "strategy",
    *(np.ones((2, 3)), np.ones((2, 2)), np.zeros((2, 2)), np.zeros((0, 0)), np.eye(4097), np.eye(2) * 1j, np.eye(2, dtype=bool)),
    np.array([[1.0, 0.0], [1.0, -1.0]]),
    np.array([[1.0, 0.0], [math.nan, 1.0]]),
    np.ma.array(np.eye(2), mask=np.eye(2, k=-1)),
    [["1", "0"], ["0", "1"]],
    np.array(["2020-01-01"], dtype="datetime64[D]"),
)


def test_what_is_no_strategy_and_what_has_none_is_refused() -> None:
    for wrong in (
        *(lambda strategy=strategy: require_strategy(strategy) for strategy in NO_STRATEGY),
        lambda: banded_toeplitz(10, 5, 11),
        lambda: banded_toeplitz(10, 0, 2),
        lambda: banded_inverse(10, 5, 11),
        *(lambda wrong=wrong: inverse_column(wrong, 5) for wrong in ([], [0.0], [1.0, 0.1], [1.0, math.nan], [1.0, -1.1], np.eye(2))),
        lambda: banded_toeplitz(3, 5, 2, workload=np.tril(np.ones((3, 3)))),
        lambda: buffered_toeplitz(10, 5, 11),
        lambda: dense(5000, 5),
        *(lambda workload=workload: dense(10, 5, workload=workload) for workload in (np.zeros(10), np.ones(9), 1j * np.ones(10))),
        *(lambda buffers=buffers: blt_column(*buffers, 5) for buffers in (((0.1,), (1.0,)), ((0.1,), (0.5, 0.1)), ((-0.1,), (0.5,)))),
        lambda: sgd_workload([1.0, 0.0]),
        lambda: sgd_workload([1.0], momentum=1.0),
        lambda: binary_tree(5000),
        *(lambda apart=apart: separated_sensitivity([1.0, 0.5], *apart) for apart in ((0, None), (1.5, None), (1, 0))),
        lambda: separated_sensitivity([1.0, -0.5], 1),
        lambda: separated_sensitivity(np.linspace(1.0, 2.0, 5000), 10),  # a column that rises
    ):
        with pytest.raises(InputError):
            wrong()


def test_the_workload_is_the_run_s(tmp_path: Path) -> None:
    """Step sizes that shrink, and momentum, have strategies of their own, better than the one of plain sums; full batches gain nothing."""
    full = make_run(batches={"design": "full"}, release="all")
    planned, plain = (lethe.plan(one, epsilon=1.0, delta=DELTA).noise_multiplier for one in (lethe.correlate(full), full))
    assert planned == pytest.approx(plain, rel=1e-6)
    run = make_run(steps=20, step_size={"schedule": "exponential", "first": 0.5, "ratio": 0.7}, release="all")
    own = lethe.correlate(run, "dense", path=tmp_path / "own.npy")
    equal = lethe.correlate(run.replace(step_size=0.5), "dense", path=tmp_path / "plain.npy")
    heavy, light = (lethe.correlate(make_run(), momentum=momentum) for momentum in (0.9, 0.0))
    for better, worse, workload, share in (
        (own, equal, sgd_workload(run.step_sizes), 0.9),
        (heavy, light, sgd_workload(np.ones(50), momentum=0.9), 1.0),
    ):
        errors = [mean_squared_error(one.noise.strategy(one.total_steps), workload, 10) for one in (better, worse) if one.noise]
        assert errors[0] < share * errors[1]


def _file(run: lethe.Run) -> Path:
    assert isinstance(run.noise, lethe.noise.LowerTriangular)
    return Path(run.noise.file)


def test_a_folder_keeps_what_was_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found again without a search, by all that was asked for; a file that was cut short or is for other steps is refused."""
    run = make_run(steps=20, release="all")
    first = lethe.correlate(run, "dense", path=tmp_path)
    others = [
        lethe.correlate(run.replace(steps=21), "dense", path=tmp_path),
        lethe.correlate(run, "dense", path=tmp_path, bands=3),
        lethe.correlate(run, "dense", path=tmp_path, momentum=0.5),
        lethe.correlate(run, "dense", path=tmp_path, influence=lethe.schedules.Influence(rate=0.9)),
        lethe.correlate(run.replace(batches={"design": "cyclic", "size": 20}), "dense", path=tmp_path),
    ]
    assert len(list(tmp_path.iterdir())) == 6
    assert len({_file(one) for one in [first, *others]}) == 6
    monkeypatch.setattr("lethe.noise_allocation.correlate.dense", None)
    assert lethe.correlate(run, "dense", path=tmp_path) == first
    kept = _file(first)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-8])
    with pytest.raises(InputError, match="cannot be read"):
        lethe.correlate(run, "dense", path=tmp_path)
    kept.write_bytes(_file(others[0]).read_bytes())
    with pytest.raises(InputError, match="21 steps"):
        lethe.correlate(run, "dense", path=tmp_path)
