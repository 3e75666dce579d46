"""Estimators on tables in blocks: the numbers and the certificate of the same fit in memory, however the records are cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from partitioned_records import SETTINGS, Payments, in_blocks, records

from lethe.errors import InputError
from lethe.estimators import (
    LogisticRegression,
    Ridge,
    SoftmaxRegression,
)
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import choose
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.options import EstimatorOptions
from lethe.partitions import array_table
from lethe.run.losses import LeastSquares, Logistic


def test_a_certificate_of_secret_batches_rests_on_workers_that_are_told_them() -> None:
    model = LogisticRegression(options=EstimatorOptions(mechanism="poisson", passes=3), feature_norm=2.0, epsilon=1.0)
    assert "workers" in {one.name for one in model.fit(in_blocks(2, "label"), None).certificate_.findings if one.evidence == "declared"}
    assert "workers" in {one.name for one in model.statement_.findings if one.evidence == "declared"}
    features, labels, _ = records()
    assert "workers" not in {one.name for one in model.fit(features, labels).certificate_.findings}


def test_more_weights_than_are_factored_are_found_by_passes_that_multiply() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((600, 40)).astype(np.float32), rng.integers(0, 6, 600)
    model = SoftmaxRegression(
        options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=6.0, **{**SETTINGS, "epsilon": 8.0}
    )
    one = model.fit(array_table(features, labels, blocks=1), None).coef_.copy()
    np.testing.assert_allclose(model.fit(array_table(features, labels, blocks=7), None).coef_, one, rtol=0.0, atol=1e-9)
    # In memory products are in single precision: both are within the certified error of the solver of the same minimiser.
    memory = model.fit(features, labels)
    (solved,) = [finding for finding in memory.statement_.findings if finding.name == "solver's error"]
    assert "hidden by noise" in solved.detail
    np.testing.assert_allclose(memory.coef_, one, rtol=0.0, atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [Logistic(feature_norm=1.0), LeastSquares(feature_norm=1.0, residual_bound=5.0)])
def test_of_mechanisms_of_nearly_the_same_risk_a_large_table_takes_the_one_of_fewest_passes(kind: Any) -> None:
    bound = 5.0 if isinstance(kind, LeastSquares) else None
    facts = PublicFacts(records=2_000_000, columns=50, loss=kind, target_bound=bound)
    budget = PrivacyBudget(epsilon=1.0, delta=1e-8)
    memory, blocks = (choose("auto", replace(facts, in_blocks=where), budget).plan for where in (False, True))
    assert 1 <= blocks.passes <= 12
    assert blocks.passes <= (memory.passes or 12) or blocks.risk < memory.risk / 2.0
    assert bound is None or (blocks.name, blocks.passes) == ("adassp", 1)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no target": (lambda: Ridge().fit(array_table(np.ones((4, 2))), None), "y: it needs the targets"),
    "targets beside": (lambda: Ridge().fit(in_blocks(2, "amount"), np.ones(1500)), "y: got ndarray; for a table in blocks"),
    "one record": (lambda: Ridge(feature_norm=1.0).fit(array_table(np.ones((1, 2)), np.ones(1)), None), "X: got 1 records in 1 blocks"),
    "one class": (lambda: LogisticRegression().fit(array_table(np.ones((9, 2)), np.ones(9)), None), "got 1 class"),
    "fractions": (lambda: LogisticRegression().fit(in_blocks(2, "amount"), None), r"block 0 \(.*column 'y': Unknown label type"),
    "another class": (
        lambda: LogisticRegression(classes=[0, 2]).fit(in_blocks(2, "label"), None),
        r"block 0 \(.*column 'y': y: got 1, which is not in the public list",
    ),
    "a target that is NaN": (
        lambda: Ridge(feature_norm=1.0).fit(array_table(np.ones((4, 2)), np.array([0.0, 1.0, np.nan, 1.0]), blocks=2), None),
        r"block 1 \(records 2 to 4\), column 'y': row 0 holds nan",
    ),
    "prediction": (
        lambda: LogisticRegression(feature_norm=2.0, **SETTINGS).fit(*records()[:2]).predict(in_blocks(2, "label")),
        "X: got PartitionedTable, a table in blocks",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_done_in_blocks_is_refused_by_name(case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        attempt()


def test_a_faulty_block_ends_the_fit_before_it_is_paid() -> None:
    features, labels, _ = records()
    features[1400, 3] = math.nan
    ledger = Payments()
    model = LogisticRegression(ledger=ledger, options=EstimatorOptions(mechanism="objective_perturbation"), feature_norm=2.0)
    with pytest.raises(InputError, match=r"block 6 \(.*column 3: row \d+ holds nan"):
        model.fit(array_table(features, labels, blocks=7), None)
    assert ledger.events == []
    assert not hasattr(model, "coef_")


def test_the_stored_order_draws_no_permutation_unless_noise_is_seeded() -> None:
    model = LogisticRegression(random_state=0)
    assert model._randomness(100, stored_order=True).order is None
    assert sorted(model._randomness(100).order.tolist()) == list(range(100))
    seeded = LogisticRegression(**SETTINGS)
    first, second = (seeded._randomness(100, stored_order=stored).mechanism for stored in (False, True))
    assert first is not None
    assert second is not None
    assert first.standard_normal() == second.standard_normal()
