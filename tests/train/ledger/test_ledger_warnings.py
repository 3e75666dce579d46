"""A fit that counts as more than its epsilon says so before noise is drawn, and none is chosen by itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.errors import LetheWarning
from lethe.ledger import Budget, Ledger, Spending

pytest.importorskip("sklearn")
pytest.importorskip("torch")

from sklearn.base import clone

from lethe.estimators import EstimatorOptions, LogisticRegression

X = np.random.default_rng(0).uniform(-1, 1, size=(400, 3))
LABELS = (X[:, 0] > 0).astype(int)


def test_a_fit_that_counts_as_more_than_its_epsilon_says_so_before_noise_is_drawn(tmp_path: Path) -> None:
    """Warnings are errors here: the fit ends, and what was reserved is given back."""
    ledger = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    ledger.create("patients", neighbours="zero_out", budget=Budget(epsilon=3, delta=1e-4), by="keeper")
    ledger.create("strict", neighbours="zero_out", budget=Budget(epsilon=3, delta=1e-6), by="keeper")
    own = {"epsilon": 0.3, "delta": 1e-5, "feature_norm": 2.0, "classes": [0, 1]}
    perturbed = LogisticRegression(**own, options=EstimatorOptions(mechanism="objective_perturbation", whiten=False))
    for name, model, why in (("patients", perturbed, "Only Gaussian noise"), ("strict", LogisticRegression(**own), "plan for delta=1e-06")):
        spender = Spending(ledger, name, by="team A")
        with pytest.raises(LetheWarning, match=rf"epsilon 0.3 at delta = 1e-05 counts as 0\.\d+ at .* budget of {name}.*{why}") as caught:
            model.set_params(ledger=spender).fit(X, LABELS)
        assert ([line.state for line in ledger.show(name).lines], hasattr(model, "coef_")) == (["voided"], False)
        with pytest.warns(LetheWarning):
            model.fit(X, LABELS)
        _, line = ledger.show(name).lines
        counted = float(str(caught.value).split("counts as ")[1].split()[0])
        assert ledger.show(name).epsilon_alone(line) == pytest.approx(counted, rel=2e-3)  # four digits, rounded up


def test_a_ledger_pays_for_no_perturbed_objective_unasked(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    ledger.create("patients", neighbours="zero_out", budget=Budget(epsilon=20, delta=1e-4), by="keeper")
    own: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "feature_norm": 2.0, "classes": [0, 1]}
    model = LogisticRegression(**own, options=EstimatorOptions(whiten=False))
    assert model.fit(X, LABELS).mechanism_ == "objective_perturbation"
    again: Any = clone(model)
    fitted = again.set_params(ledger=Spending(ledger, "patients")).fit(X, LABELS)
    assert fitted.mechanism_ != "objective_perturbation"
    assert "objective_perturbation" in fitted.privacy_report_
    (line,) = ledger.show("patients").lines
    assert ledger.show("patients").epsilon_alone(line, 1e-5) <= 8.0 * (1 + 1e-6)
