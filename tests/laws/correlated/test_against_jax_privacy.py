"""Sensitivities, coefficients and errors against those of JAX Privacy 2.0.0, computed there in float64 and written down here.

Its `fixed_epoch_sensitivity` is of the order that cyclic batches keep, and `minsep_sensitivity_squared` of participations at least b steps
apart, which for Toeplitz strategies that do not increase is the same. They differ where

- a banded matrix is no Toeplitz matrix: any steps that are b apart may be worse than a slot that is kept (`get_sensitivity_banded`);
- coefficients increase: refused there, computed here;
- the passes do not divide the steps: refused there (`fixed_epoch_sensitivity`), computed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.calculus.correlated.matrices import blt_column, prefix_sums
from lethe.calculus.correlated.optimum import banded_toeplitz, dense
from lethe.calculus.correlated.sensitivity import mean_squared_error, noise_squares, sensitivity, separated_sensitivity
from lethe.run.noise import LowerTriangular

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


@pytest.mark.parametrize(
    ("steps", "bands", "theirs"), [(12, 12, 1.3828256297820039), (100, 20, 2.8456358149606094), (1000, 1000, 3.465664274928576)]
)
def test_the_mean_squared_error_of_prefix_sums(steps: int, bands: int, theirs: float) -> None:
    """`toeplitz.per_query_error`, its mean."""
    assert noise_squares(column(steps, bands), prefix_sums(steps)) / steps == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize(("steps", "bands", "theirs"), [(64, 8, 7.09676191688255), (256, 32, 9.528398447376961)])
def test_the_best_bands_for_one_participation_are_as_good(steps: int, bands: int, theirs: float) -> None:
    """`toeplitz.optimize_banded_toeplitz`: mean error times squared sensitivity."""
    found = np.zeros(steps)
    found[:bands] = banded_toeplitz(steps, steps, bands)
    assert mean_squared_error(found, prefix_sums(steps), steps) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(("passes", "theirs", "worse"), [(1, 3.579999382137288, 1e-9), (4, 16.219080381535417, 0.0058)])
def test_the_best_matrices_of_32_steps_are_as_good(passes: int, theirs: float, worse: float) -> None:
    """`dense.optimize`, of sensitivity 1: the same for one participation; for four the search here ends .6 % above."""
    found = dense(32, 32 // passes)
    assert mean_squared_error(found, prefix_sums(32), 32 // passes) == pytest.approx(theirs * (1 + worse), rel=1e-4)


def test_coefficients_of_buffers() -> None:
    assert blt_column(SMALL[1], SMALL[0], 200)[[0, 1, 2, 3, 199]] == pytest.approx(
        [1.0, 0.4, 0.18, 0.108, 8.709974208216503e-11], rel=1e-12
    )
    assert blt_column(LARGE[1], LARGE[0], 200)[[0, 1, 2, 3, 199]] == pytest.approx(
        [1.0, 0.35, 0.1695, 0.121005, 0.006835000247829901], rel=1e-12
    )


def test_their_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    """A matrix, Toeplitz coefficients, and the pair of decays and scales of a BLT; certified with the sensitivity they have there."""
    changes: dict[str, Any] = {
        "release": "all",
        "neighbours": "zero_out",
        "noise_multiplier": 4.0,
        "batches": {"design": "cyclic", "size": 25},
    }
    for noise, steps, theirs in (
        (LowerTriangular.saved(matrix(12, 12), tmp_path / "C.npy"), 12, FIXED_EPOCH[0][3]),
        (lethe.noise.BandedToeplitz(coefficients=column(12, 12)), 12, TOEPLITZ[0][3]),
    ):
        certificate = lethe.certify(make_run(noise=noise, **changes, passes=None, steps=steps), 1e-5)
        assert certificate.guarantee.mu == pytest.approx(theirs / 4.0, rel=1e-9)  # type: ignore[attr-defined]
    decays, scales = SMALL
    noise = lethe.noise.BufferedToeplitz(scales=np.array(scales), decays=np.array(decays))
    run = make_run(noise=noise, **{**changes, "records": 96, "batches": {"design": "cyclic", "size": 16}}, passes=5)
    assert lethe.certify(run, 1e-5).guarantee.mu == pytest.approx(BUFFERED[0][3] / 4.0, rel=1e-9)  # type: ignore[attr-defined]
