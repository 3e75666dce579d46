r"""What the last iterate would give away if the loss were linear: no proof, and nothing rests on it.

Reports and the command line show it beside the certificate, marked as a heuristic. G is a gradient bound, C the clip norm, $z_t$ the noise
multiplier of step t.

With a linear loss a record adds the same vector to each batch that holds it, and the last iterate is a sum: the record moves it by
$KG$ beside noise of variance $\sum_t z_t^2C^2$, where K counts the batches that held it. Networks that were attacked gave away no more than
that; losses can be built that give away more.

Reference: Steinke et al. 2024, arXiv:2410.06186.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

from lethe.calculus.conversions import profile_epsilon
from lethe.calculus.domains import FloatArray
from lethe.calculus.large_delta import open_delta
from lethe.run.participation import KNOWN_SIZES, BatchSizes, Participation, unknown_participation
from lethe.run.run import Run

HEURISTIC = "heuristic, no proof"
_TAIL, _FAR, _EVALUATIONS = 1e-16, 12.0, 4_000_000


def last_iterate_heuristic(run: Run, delta: float) -> float | None:
    r"""The epsilon of the last iterate if the loss were linear, a heuristic without proof; None where it says nothing of the run.

    It needs a run that releases its last iterate alone, plain gradient steps of one size with independent noise, no regulariser, and
    batches of which the number that hold a record does not depend on the other records. `certify` never uses it. Reference: Steinke et al.
    2024, arXiv:2410.06186.

    Raises:
        InputError: delta is outside (0, 1).
    """
    target, law = open_delta(delta), None if run.noise is not None or run.noise_multiplier is None else _participation_law(run)
    plain = run.release == "last" and not run.seeded and not run.regularisers and run.pass_weights is None and run.batches.cap is None
    if law is None or not plain or np.ptp(run.step_sizes) > 0.0:
        return None
    noise = math.sqrt(float(np.square(run.record_noise).sum()))
    if noise == 0.0:
        return math.inf
    counts, chances = law
    return profile_epsilon(_profile(counts / noise, chances, run.neighbours == "replace_one"), target)


def _participation_law(run: Run) -> tuple[FloatArray, FloatArray] | None:
    """How many batches may hold a record, and the chances of these numbers; None where that is no matter of the record alone."""
    steps, size, design = run.total_steps, run.steps_per_pass, run.batches
    if design.sizes not in KNOWN_SIZES:
        return None
    match design.participation:
        case Participation.EVERY_STEP:
            return np.array([steps * 1.0]), np.ones(1)
        case Participation.PUBLIC_SLOT:
            return np.array([float(-(-steps // size))]), np.ones(1)
        case Participation.SECRET_SLOT | Participation.FRESH_SECRET_SLOT:
            return (np.array([float(steps // size)]), np.ones(1)) if steps % size == 0 else None
        case Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            if design.sizes is not BatchSizes.BINOMIAL or design.groups_of_records > 1:
                return None
            law = binom(steps, run.batch_size / run.records)
            counts = np.arange(law.ppf(_TAIL), law.isf(_TAIL) + 1.0)
            return counts, law.pmf(counts)
    raise unknown_participation(design.design, design.participation)


def _profile(moves: FloatArray, chances: FloatArray, replaced: bool) -> Callable[[float], float]:
    r"""The larger hockey-stick divergence of $N(m, 1)$, m drawn, and $N(0, 1)$; or $N(-m, 1)$ where another record takes the place.

    Likelihood ratios grow with the point, so that the best sets are all points beyond one; the best of many points is taken.
    """
    points = np.linspace(-_FAR - replaced * moves.max(), _FAR + moves.max(), int(np.clip(_EVALUATIONS // moves.size, 2_001, 20_001)))
    shifts = moves - points[:, None]
    beyond, before = (logsumexp(log_ndtr(sign * shifts), axis=1, b=chances) for sign in (1.0, -1.0))
    without_record = (before[::-1], beyond[::-1]) if replaced else (log_ndtr(-points), log_ndtr(points))

    def delta(epsilon: float) -> float:
        with np.errstate(over="ignore"):
            ways = np.exp((beyond, without_record[1])) - np.exp(np.add((without_record[0], before), epsilon))
        return min(max(float(ways.max()), 0.0), 1.0)

    return delta
