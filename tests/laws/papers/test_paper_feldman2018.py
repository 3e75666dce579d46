"""Feldman et al. 2018 (arXiv:1808.06651): per position, worst position, and what the shift engine makes of each."""

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.theorems.literature.feldman_2018 import Feldman2018, position_rhos
from lethe.theorems.shuffled.positions import position_mus

RUN = make_run(noise_multiplier=3.0)  # 10 slots, 5 passes, s / tau = 2/3


def test_the_formula_of_the_paper() -> None:
    """2 alpha L^2 / (b^2 sigma^2) [(E-1)/B + 1/(B-j+1)] with sigma = z C / b, so L / (b sigma) = 1 / z."""
    expected = [2 / 3.0**2 * (4 / 10 + 1 / (10 - j + 1)) for j in range(1, 11)]
    assert position_rhos(RUN) == pytest.approx(expected, rel=1e-14)


def test_the_worst_position_is_the_last() -> None:
    guarantee = Feldman2018().bound(RUN).guarantee
    assert isinstance(guarantee, lethe.guarantees.ZCDP)
    assert guarantee.rho == pytest.approx(2 / 9 * 1.4, rel=1e-12)


def test_it_is_the_shift_engine_at_l_equal_1_but_for_the_detour_through_renyi() -> None:
    mus = position_mus(np.ones(50), RUN.sensitivities, RUN.noise_stds, 10)
    assert position_rhos(RUN) == pytest.approx(mus**2 / 2, rel=1e-12)
    assert lethe.certify(RUN, 1e-5).epsilon < Feldman2018().bound(RUN).guarantee.epsilon(1e-5)
