"""Correlated noise as a shape: the strategy of least harm among those that need few numbers a parameter."""

from __future__ import annotations

import numpy as np

from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.noise_allocation.correlate import correlate
from lethe.noise_allocation.harm import harm_of
from lethe.run.participation import BatchSizes, Participation
from lethe.run.run import Run
from lethe.run.schedules import Influence

# A Toeplitz strategy has the same numbers at every step; those that are best for so many steps are taken for longer runs too.
_LONGEST = 50_000
# Passes of more steps are more than a banded strategy of usual width reaches back.
_LONG_PASS = 64
_HALVED = 6


def correlated(run: Run, influence: Influence) -> Run:
    r"""The run with Toeplitz noise, banded or, where a pass is long, buffered; of noise multiplier 1.

    Each is the best for the mean of all iterates, by `correlate`; of the two the one is taken whose last iterate has less harm at equal
    privacy, $\mathrm{harm}\cdot\mathrm{sens}^2$.

    Args:
        run: its own noise is not looked at; its steps may differ in size, the strategy is that of equal steps.
        influence: $q_t$ of the run's steps.
    Raises:
        InputError: the run cannot have correlated noise.
    """
    plain = run.replace(noise_multiplier=1.0)
    steps, slots = plain.total_steps, plain.batches.period(plain.records) or 1
    if steps > _LONGEST:
        searched, fading = plain.replace(step_size=1.0, steps=_LONGEST), _end_of(influence, steps)
    else:
        searched, fading = plain.replace(step_size=1.0), influence
    noises = [correlate(searched, influence=fading).noise]
    if slots > _LONG_PASS and plain.batches.participation is not Participation.DRAW_IN_PUBLIC_GROUP:  # else few bands alone are amplified
        noises.append(correlate(searched, "buffered_toeplitz", influence=fading).noise)
    found = [plain.replace(noise=noise) for noise in noises]
    return min(found, key=lambda one: _at_equal_privacy(one, influence))


def with_fewer_bands(run: Run, influence: Influence) -> list[Run]:
    """The run with banded noise of a half, a quarter and so on of the bins of a pass, where a secret bin then hides more; else none.

    Args:
        run: its own noise is not looked at.
        influence: of the run's steps.
    """
    batches = run.batches
    if batches.participation is not Participation.SECRET_SLOT or batches.sizes is not BatchSizes.BINOMIAL or run.total_steps > _LONGEST:
        return []
    plain = run.replace(noise_multiplier=1.0)
    most = min(_LONG_PASS, plain.total_steps)
    tried = [bands for halved in range(1, _HALVED + 1) if 2 <= (bands := plain.steps_per_pass >> halved) <= most]
    noises = [correlate(plain.replace(step_size=1.0), bands=bands, influence=influence).noise for bands in tried]
    return [plain.replace(noise=noise) for noise in noises]


def _end_of(influence: Influence, steps: int) -> Influence:
    last = influence.values(steps)[-_LONGEST:]
    return Influence(weights=tuple(np.maximum(last, np.finfo(np.float64).tiny).tolist()), basis=influence.basis)


def _at_equal_privacy(run: Run, influence: Influence) -> float:
    assert run.noise is not None
    return harm_of(run, influence) * sensitivity(run.noise.strategy(run.total_steps), run.batches.period(run.records) or 1) ** 2
