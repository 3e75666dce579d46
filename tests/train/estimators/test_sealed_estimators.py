"""The seal of a fitted estimator's statement: of the weights that fit released, whatever is done to the estimator afterwards."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from private_cases import build, two_blobs
from sklearn.base import clone

import lethe
from lethe.certificates.statement import Statement
from lethe.estimators import LogisticRegression, PrivateStandardScaler, privacy_of
from lethe.mechanisms.base import joint

X, y = two_blobs(200)
DELTA = 1e-4
QUICK: dict[str, Any] = {"mechanism": "output_perturbation", "feature_norm": 4.0, "epsilon": 2.0, "delta": DELTA}


@pytest.fixture(autouse=True)
def _own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def classifier(**changes: Any) -> Any:
    return build(LogisticRegression, **{**QUICK, **changes}).fit(X, y)


def weights_of(model: Any) -> dict[str, Any]:
    return {"coef_": np.array(model.coef_), "intercept_": np.array(model.intercept_)}


def belongs(proof: Any, weights: dict[str, Any]) -> bool:
    found = lethe.verify(proof, weights=weights)
    assert found.belongs is not None
    assert found.sealed.yes
    return found.belongs.yes


def test_it_is_signed_when_it_is_first_asked_for_and_once(tmp_path: Path) -> None:
    model = classifier()
    assert isinstance(model.statement_, Statement)
    assert not (tmp_path / "config").exists()  # a fit makes no key
    assert model.certificate_ is model.certificate_
    assert (tmp_path / "config").exists()
    assert lethe.verify(model.certificate_, weights=weights_of(model), max_epsilon=2.0).yes
    assert model.statement_.seal is None
    assert not lethe.verify(model.statement_).sealed.yes
    assert model.certificate_.releases == model.statement_.releases  # one release, however it is told


@pytest.mark.parametrize("asked_before", [False, True])
def test_what_is_done_to_a_fitted_one_does_not_move_its_seal(asked_before: bool) -> None:
    model = classifier()
    released, stated = weights_of(model), model.statement_
    if asked_before:
        assert model.certificate_.seal is not None
    model.coef_ = model.coef_ * 2.0
    model.epsilon_ = model.delta_ = 1e-9
    typed = replace(stated, guarantee=lethe.guarantees.GDP(1e-9), findings=())
    model.statement_ = typed
    assert belongs(model.certificate_, released)
    assert not belongs(model.certificate_, weights_of(model))
    assert model.certificate_.guarantee == stated.guarantee
    model.certificate_ = typed  # by hand: nobody signs that
    assert model.certificate_.seal is None


@pytest.mark.parametrize("asked_before", [False, True])
def test_pickles_clones_and_second_fits(asked_before: bool) -> None:
    model = classifier()
    first = weights_of(model)
    if asked_before:
        assert model.certificate_.seal is not None
    again = pickle.loads(pickle.dumps(model))
    assert belongs(again.certificate_, first)
    assert again.certificate_.release_id == model.certificate_.release_id
    assert not hasattr(clone(model), "certificate_")
    old = model.certificate_
    model.fit(X, y)
    assert belongs(model.certificate_, weights_of(model))
    assert not belongs(model.certificate_, first)
    assert belongs(old, first)
    assert model.certificate_.release_id != old.release_id


def test_an_altered_one_in_memory_is_not_sealed_and_neither_is_a_part() -> None:
    sealed = classifier().certificate_
    for change in ({"name": "another"}, {"guarantee": lethe.guarantees.GDP(0.1)}, {"release_id": ""}, {"records": 10**9}, {"findings": ()}):
        altered = replace(sealed, **change)
        assert altered.seal.flaw == "over another statement than this one"
        assert "NOT SEALED" in altered.explain()
        assert not lethe.verify(altered).sealed.yes
    other = classifier().certificate_
    for both in (joint([sealed, other]), replace(joint([sealed]), name="one")):
        assert both.seal is None
        assert [part.seal for part in both.derivation.parts] == [None] * len(both.derivation.parts)  # pyright: ignore[reportOptionalMemberAccess]
        assert Statement.from_dict(both.to_dict()) == both.as_read()
    assert privacy_of(classifier()).seal is None
    assert PrivateStandardScaler(epsilon=1.0, delta=DELTA, bounds=(-5.0, 5.0)).fit(X).certificate_.seal is None


def test_without_a_key_there_is_a_statement_and_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("no folder")
    model = classifier()
    with pytest.raises(lethe.InputError, match=r"(?s)no signing key can be made.*take statement_"):
        model.certificate_.explain()
    assert model.statement_.epsilon(DELTA) <= 2.0
