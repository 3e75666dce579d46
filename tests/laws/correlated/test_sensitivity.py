"""The sensitivity of a strategy: never below what contributions reach, in a slot that is kept and in any steps far enough apart.

And sensitivities, coefficients and errors against those of JAX Privacy 2.0.0, computed there in float64 and written down here. Its
`fixed_epoch_sensitivity` is of the order that cyclic batches keep, and `minsep_sensitivity_squared` of participations at least b steps
apart, which for Toeplitz strategies that do not increase is the same. They differ where

- a banded matrix is no Toeplitz matrix: any steps that are b apart may be worse than a slot that is kept (`get_sensitivity_banded`);
- coefficients increase: refused there, computed here;
- the passes do not divide the steps: refused there (`fixed_epoch_sensitivity`), computed here.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from how_many import by_night
from strategies import COLUMNS, contributions_of, correlated_run, random_triangular

import lethe
from lethe.calculus.correlated.matrices import as_matrix, blt_column, prefix_sums, square_root
from lethe.calculus.correlated.optimum import banded_toeplitz, dense
from lethe.calculus.correlated.sensitivity import mean_squared_error, noise_squares, sensitivity, separated_sensitivity, slot_sensitivities
from lethe.run.noise import LowerTriangular


def length_of(matrix: np.ndarray, slot: int, slots: int, vectors: np.ndarray) -> float:
    return float(np.linalg.norm(matrix @ contributions_of(slot, slots, len(matrix), vectors)))


def by_signs(matrix: np.ndarray, slot: int, slots: int) -> float:
    """The largest over contributions of +1 and -1 in one dimension: brute force."""
    count = len(range(slot, len(matrix), slots))
    patterns = (np.array((1.0, *rest))[:, None] for rest in itertools.product((-1.0, 1.0), repeat=count - 1))
    return max(length_of(matrix, slot, slots, pattern) for pattern in patterns)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 12, 40])
@pytest.mark.parametrize("name", COLUMNS)
def test_of_entries_that_are_not_negative_it_is_what_the_worst_signs_reach(name: str, slots: int) -> None:
    """Exact in both directions: a bound 1 % too small, or too large, fails; as a column and as a matrix."""
    column = COLUMNS[name]
    matrix = as_matrix(column)
    exact = [by_signs(matrix, slot, slots) for slot in range(min(slots, 12))]
    for said in (slot_sensitivities(column, slots), slot_sensitivities(matrix, slots)):
        assert said == pytest.approx(exact, rel=1e-10)
        assert (said >= exact).all()


def test_it_is_never_below_what_vectors_reach() -> None:
    """Random strategies and contributions, by unit vectors of random dimension, brute signs among them for the signed ones."""
    random = np.random.default_rng(0)
    closest = 0.0
    for case in range(5000 if by_night() else 1000):
        steps, signed = int(random.integers(1, 9)), bool(random.integers(2))
        slots = int(random.integers(1, steps + 1))
        matrix = random_triangular(random, steps, signed=signed)
        bounds = slot_sensitivities(matrix, slots)
        slot = int(random.integers(min(slots, steps)))
        vectors = random.normal(size=(steps, int(random.integers(1, 5))))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        # Turned towards the worst: each vector along what the others make of it, a few times.
        gram = matrix.T @ matrix
        used = np.arange(slot, steps, slots)
        for _ in range(case % 4):
            for place, step in enumerate(used):
                pull = gram[step, used] @ vectors[: len(used)] - gram[step, step] * vectors[place]
                length = np.linalg.norm(pull)
                vectors[place] = pull / length if length > 1e-9 else vectors[place]
        worst = length_of(matrix, slot, slots, vectors)
        assert worst <= bounds[slot]
        closest = max(closest, worst / bounds[slot])
        if not signed:
            assert by_signs(matrix, slot, slots) == pytest.approx(bounds[slot], rel=1e-9)
    assert closest > 0.9999


def test_the_largest_eigenvalue_bounds_signed_entries_too() -> None:
    """Three equal angles of 120 degrees: the Gram matrix has -1/2 off its diagonal, and vectors in the plane reach 3 x 1.5."""
    gram = np.full((3, 3), -0.5) + 1.5 * np.eye(3) + 1e-9 * np.eye(3)
    matrix = np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]
    angles = 2 * np.pi * np.arange(3) / 3
    vectors = np.stack((np.cos(angles), np.sin(angles)), axis=1)
    assert sensitivity(matrix, 1) == pytest.approx(length_of(matrix, 0, 1, vectors), rel=1e-6) == pytest.approx(math.sqrt(4.5), rel=1e-6)
    assert np.abs(gram).sum() > 5.9


def patterns(steps: int, separation: int, count: int) -> list[tuple[int, ...]]:
    sets = itertools.chain.from_iterable(itertools.combinations(range(steps), size) for size in range(1, count + 1))
    return [one for one in sets if all(later - earlier >= separation for earlier, later in itertools.pairwise(one))]


def reached(matrix: np.ndarray, separation: int, count: int) -> float:
    """The most over all sets and signs, in one dimension."""
    most = 0.0
    for places in patterns(len(matrix), separation, count):
        for signs in itertools.product((-1.0, 1.0), repeat=len(places) - 1):
            most = max(most, float(np.linalg.norm(matrix[:, list(places)] @ np.array((1.0, *signs)))))
    return most


@pytest.mark.parametrize(("separation", "count"), [(1, 3), (2, 12), (3, 2), (5, 3), (12, 1)])
@pytest.mark.parametrize("name", ["identity", "two bands", "square root", "buffers"])
def test_of_columns_that_do_not_rise_it_is_what_the_worst_steps_reach(name: str, separation: int, count: int) -> None:
    """Exact: 1 % less would fail, and so would 1 % more; as a matrix, whose bound is another, never less."""
    column = COLUMNS[name]
    exact = reached(as_matrix(column), separation, min(count, -(-12 // separation)))
    assert exact <= separated_sensitivity(column, separation, count) <= exact * (1 + 1e-10)
    assert exact <= separated_sensitivity(as_matrix(column), separation, count) <= 1.3 * exact


def test_it_is_never_below_what_any_steps_reach_and_exact_of_few_bands() -> None:
    random, ratios = np.random.default_rng(0), list[float]()
    for _ in range(150):
        steps, signed = int(random.integers(1, 9)), bool(random.integers(2))
        separation, count = int(random.integers(1, steps + 1)), int(random.integers(1, 5))
        matrix = random_triangular(random, steps, signed=signed)
        exact = reached(matrix, separation, count)
        found = separated_sensitivity(matrix, separation, count)
        assert exact <= found
        if not signed:
            ratios.append(found / exact)
        matrix[np.subtract.outer(np.arange(steps), np.arange(steps)) >= separation] = 0.0
        assert separated_sensitivity(matrix, separation, count) == pytest.approx(reached(matrix, separation, count), rel=1e-10)
        if not signed:  # the column of the first rows, which may rise and fall
            column = matrix[:, 0].copy()
            assert reached(as_matrix(column), separation, count) <= separated_sensitivity(column, separation, count)
    assert np.median(ratios) < 1.05


def test_fixed_slots_are_such_steps_and_long_columns_take_no_time() -> None:
    for slots in (1, 3, 5):
        for column in (square_root(40), square_root(40, 8)):
            assert sensitivity(column, slots) == pytest.approx(separated_sensitivity(column, slots), rel=1e-12)
    assert separated_sensitivity(square_root(100_000), 100, 5) < separated_sensitivity(square_root(100_000), 100)
    rising = np.zeros(100_000)
    rising[:3] = 0.5, 1.0, 0.25
    assert separated_sensitivity(rising, 100) == pytest.approx(np.sqrt(1000 * (0.25 + 1.0 + 0.0625)), rel=1e-9)


# --- against JAX Privacy ---

# Steps, steps a pass, bands, result.
FIXED_EPOCH = ((12, 4, 12, 3.5177837712586673), (20, 5, 20, 4.66304926567964), (24, 24, 24, 1.8383449774793699),
               (30, 1, 30, 32.38728660819821), (40, 8, 6, 3.447109572200762))  # fmt: skip
MIN_SEPARATION = ((12, 4, 4, 2.458906724410102), (20, 5, 3, 2.847408903059545), (40, 8, 8, 3.59167932694835))
TOEPLITZ = ((12, 4, 12, 3.1962188594537015), (20, 5, 3, 2.5248581319511936), (100, 7, 20, 8.189122245769935),
            (1000, 50, 1000, 12.958014882321713))  # fmt: skip
SMALL, LARGE = ((0.9, 0.3), (0.1, 0.3)), ((0.99, 0.8, 0.2), (0.05, 0.1, 0.2))  # buf_decay, output_scale
BUFFERED = ((30, 6, SMALL, 2.733501835776499), (200, 200, SMALL, 1.1107314971091728), (1000, 50, SMALL, 4.971398249215274),
            (30, 6, LARGE, 2.9209036585495736), (200, 200, LARGE, 1.146038973820784), (1000, 50, LARGE, 6.114933267255845))  # fmt: skip


def matrix(steps: int, bands: int) -> Any:
    """The same formula as there."""
    step = np.arange(steps)
    back = step[:, None] - step[None, :]
    entries = 1.0 / (1.0 + np.abs(back)) ** 0.7 + 0.1 * np.abs(np.sin(1.0 + 3 * step[:, None] + 7 * step[None, :]))
    return np.where((back >= 0) & (back < bands), entries, 0.0)


def column(steps: int, bands: int) -> Any:
    found = np.zeros(steps)
    found[:bands] = 1.0 / (1.0 + np.arange(bands)) ** 0.7
    return found


@pytest.mark.parametrize(
    ("strategy", "slots", "theirs"),
    [
        *((matrix(steps, bands), slots, theirs) for steps, slots, bands, theirs in FIXED_EPOCH),
        *((column(steps, bands), slots, theirs) for steps, slots, bands, theirs in TOEPLITZ),
        *((blt_column(scales, decays, steps), slots, theirs) for steps, slots, (decays, scales), theirs in BUFFERED),
    ],
)
def test_sensitivities_in_a_fixed_order(strategy: Any, slots: int, theirs: float) -> None:
    assert sensitivity(strategy, slots) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(("steps", "slots", "bands", "theirs"), MIN_SEPARATION)
def test_a_slot_that_is_kept_is_no_worse_than_any_steps_so_far_apart(steps: int, slots: int, bands: int, theirs: float) -> None:
    """Without overlap it is the root of the largest sum of columns' squares: over the slots here, over all choices there."""
    given = matrix(steps, bands)
    squares = np.square(given).sum(axis=0)
    assert sensitivity(given, slots) == pytest.approx(np.sqrt(max(squares[slot::slots].sum() for slot in range(slots))), rel=1e-12)
    assert separated_sensitivity(given, slots, steps // slots) == pytest.approx(theirs, rel=1e-9)
    assert sensitivity(given, slots) <= theirs * (1 + 1e-12)


def test_mean_squared_errors_and_those_of_the_best_strategies() -> None:
    """`toeplitz.per_query_error`, its mean; `toeplitz.optimize_banded_toeplitz`, mean error times squared sensitivity; and
    `dense.optimize`, of sensitivity 1: the same for one participation; for four the search here ends .6 % above."""
    for steps, bands, theirs in ((12, 12, 1.3828256297820039), (100, 20, 2.8456358149606094), (1000, 1000, 3.465664274928576)):
        assert noise_squares(column(steps, bands), prefix_sums(steps)) / steps == pytest.approx(theirs, rel=1e-9)
    for steps, bands, theirs in ((64, 8, 7.09676191688255), (256, 32, 9.528398447376961)):
        found = np.append(banded_toeplitz(steps, steps, bands), np.zeros(steps - bands))
        assert mean_squared_error(found, prefix_sums(steps), steps) == pytest.approx(theirs, rel=1e-6)
    for passes, theirs, worse in ((1, 3.579999382137288, 1e-9), (4, 16.219080381535417, 0.0058)):
        found = dense(32, 32 // passes)
        assert mean_squared_error(found, prefix_sums(32), 32 // passes) == pytest.approx(theirs * (1 + worse), rel=1e-4)


@pytest.mark.parametrize(
    ("buffers", "theirs"),
    [(SMALL, [1.0, 0.4, 0.18, 0.108, 8.709974208216503e-11]), (LARGE, [1.0, 0.35, 0.1695, 0.121005, 0.006835000247829901])],
)
def test_coefficients_of_buffers(buffers: tuple[tuple[float, ...], ...], theirs: list[float]) -> None:
    assert blt_column(buffers[1], buffers[0], 200)[[0, 1, 2, 3, 199]] == pytest.approx(theirs, rel=1e-12)


def test_their_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    """A matrix, Toeplitz coefficients, and the pair of decays and scales of a BLT; certified with the sensitivity they have there."""
    decays, scales = (np.array(values) for values in SMALL)
    few: dict[str, Any] = {"batches": {"design": "cyclic", "size": 25}, "steps": 12}
    for noise, changes, theirs in (
        (LowerTriangular.saved(matrix(12, 12), tmp_path / "C.npy"), few, FIXED_EPOCH[0][3]),
        (lethe.noise.BandedToeplitz(coefficients=column(12, 12)), few, TOEPLITZ[0][3]),
        (
            lethe.noise.BufferedToeplitz(scales=scales, decays=decays),
            {"records": 96, "batches": {"design": "cyclic", "size": 16}},
            BUFFERED[0][3],
        ),
    ):
        run = correlated_run(noise, neighbours="zero_out", noise_multiplier=4.0, **changes)
        assert lethe.certify(run, 1e-5).guarantee.mu == pytest.approx(theirs / 4.0, rel=1e-9)  # type: ignore[attr-defined]
