"""Runs whose noise was chosen along the way are certified by their filter's budget, and by nothing else."""

import numpy as np
import pytest
from helpers import DESIGNS, batches, make_run

import lethe
from lethe.theorems.composition import spent_budgets
from lethe.theorems.registry import ALL


def filtered_run(**changes):
    return make_run(**{"release": "all", "noise_budget": 0.8, **changes})


def test_the_budget_is_certified_and_not_what_was_spent() -> None:
    run = filtered_run()  # 5 touches at 1/2 (2/5)^2 = 0.08
    assert spent_budgets(run) == pytest.approx(np.full(10, 0.4))
    certificate = lethe.certify(run, 1e-5)
    assert certificate.theorem == "budget-filter"
    assert certificate.epsilon == pytest.approx(lethe.guarantees.ZCDP(0.8).epsilon(1e-5), rel=1e-6)
    assert certificate.epsilon >= lethe.guarantees.ZCDP(0.8).epsilon(1e-5)


def test_no_other_theorem_speaks_of_it() -> None:
    run = filtered_run()
    spoke = [theorem.name for theorem in ALL if all(finding.status != "fails" for finding in theorem.examine(run))]
    assert spoke == ["budget-filter"]


def test_a_record_that_overspent_is_refused() -> None:
    with pytest.raises(lethe.HypothesisError):
        lethe.certify(filtered_run(noise_budget=0.39), 1e-5)
    assert lethe.certify(filtered_run(noise_budget=0.4), 1e-5).theorem == "budget-filter"  # spent exactly
    with pytest.raises(lethe.HypothesisError):
        lethe.certify(filtered_run(noise_multiplier=0.0), 1e-5)


@pytest.mark.parametrize("design", DESIGNS)
def test_only_known_slots_have_accounts_of_their_own(design) -> None:
    run = filtered_run(batches=batches(design, 10), noise_budget=100.0)
    accounts = spent_budgets(run)
    touch = 0.5 * (2 / 5) ** 2
    if design in ("cyclic", "shuffled_once"):
        assert accounts == pytest.approx(np.full(10, 5 * touch))
    else:
        assert accounts == pytest.approx([run.total_steps * touch])
    assert accounts.max() >= lethe.guarantees.GDP(5**0.5 * 2 / 5).mu ** 2 / 2 * (1 - 1e-12)
