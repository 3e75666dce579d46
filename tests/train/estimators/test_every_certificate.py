"""The certificate of every estimator: saved, read, computed again, added, sealed to what fit released, and spoilt entry by entry."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_release import CASES, data, fitted
from how_many import by_night
from private_cases import build, two_blobs
from sklearn.pipeline import make_pipeline

import lethe
from lethe.accounting.recheck import recheck_statement
from lethe.accounting.verify import load
from lethe.calculus.upward_formatting import shown
from lethe.certificates.statement import Statement
from lethe.documents.strict import write_document
from lethe.estimators import LogisticRegression, PrivateStandardScaler, privacy_of
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.options import EstimatorOptions
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


def test_an_altered_one_in_memory_is_not_sealed_and_neither_is_a_part() -> None:
    sealed = classifier().certificate_
    for change in ({"name": "another"}, {"guarantee": lethe.guarantees.GDP(0.1)}, {"records": 10**9}, {"findings": ()}):
        assert replace(sealed, **change).seal.flaw == "over another statement than this one"
        assert not lethe.verify(replace(sealed, **change)).sealed.yes
    both = joint([sealed, classifier().certificate_])
    assert both.seal is None
    assert [part.seal for part in both.derivation.parts] == [None, None]  # pyright: ignore[reportOptionalMemberAccess]


LEVEL = 5e-5
# One of each kind of derivation, and quick.
KINDS = {
    "objective perturbation": "classifier by objective_perturbation",
    "output perturbation": "classifier by output_perturbation",
    "run": "Lasso",
    "adassp": "regressor by adassp",
    "means and scales": "PrivateStandardScaler, given",
    "second moments": "PrivatePCA",
    "channel moments": "PrivateWhitening",
    "phases": "PrivateMean, given",
    "largest eigenvalue": "HeavyTailedLinearRegression",
    "private selection": "PrivateSearch",
}
SLOWEST = {"classifier by poisson", "classifier by cyclic_poisson_correlated"}  # their convolutions take many seconds
# Their convolution with another release takes a second or more.
EXPENSIVE = {"HuberRegressor", "classifier by full_batch", "PrivateSearch", "PrivateSearch of a norm"}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", [name for name in CASES if name not in SLOWEST])
@pytest.mark.filterwarnings("ignore")  # of ranges that may be too small
def test_its_certificate_is_saved_read_computed_again_and_added(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    file = tmp_path / "one.json"
    model.certificate_.save(file)
    read = load(file)
    epsilon = model.epsilon_
    for one in (model.certificate_, read):
        assert one.epsilon_at(LEVEL) == pytest.approx(epsilon, rel=1e-9)
        assert one.delta_at(epsilon) <= LEVEL * (1 + 1e-9)
        assert 0.0 <= one.tradeoff(0.05) <= 0.95
        assert one.explain().startswith(f"({shown(epsilon)}, 5e-05)-DP, {model.neighbours.replace('_', ' ')}")
    linear = isinstance(model, PrivateLinearModel)
    weights = {"coef_": model.coef_, "intercept_": model.intercept_} if linear else {"mean_": 0.0}
    answers = lethe.verify(file, weights=weights)
    assert answers.follows.yes, answers.follows.why
    assert answers.private.yes
    assert answers.belongs is not None
    assert answers.sealed.yes is answers.belongs.yes is linear
    total = lethe.total([file], LEVEL)
    assert total.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert total.parts[0].computed
    if name not in EXPENSIVE:
        assert lethe.total([file, lethe.guarantees.GDP(0.1)], LEVEL, neighbours=model.neighbours).epsilon > epsilon


def leaves(content: Any) -> Iterator[dict[str, Any]]:
    """The parameters of the releases in a derivation."""
    for part in content.get("parts", []):
        yield from leaves(part["derivation"])
    if not content.get("parts"):
        yield content


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.filterwarnings("ignore")
def test_numbers_that_do_not_give_its_guarantee_are_refused(kind: str, tmp_path: Path) -> None:
    """More noise, a tenth more, would give a smaller epsilon than the one that is written: then one of the two was typed."""
    content = fitted(KINDS[kind]).statement_.to_dict()
    assert kind in [leaf["kind"] for leaf in leaves(content["derivation"])]
    altered = copy.deepcopy(content)
    leaf = next(one for one in leaves(altered["derivation"]) if one["kind"] == kind)
    parameters = leaf["parameters"]
    if kind == "run":
        noise = parameters["run"]["noise_multiplier"]
        parameters["run"]["noise_multiplier"] = noise * 0.9 if isinstance(noise, float) else [one * 0.9 for one in noise]
    elif kind == "phases":
        parameters["phases"][-1]["noise_std"] *= 0.9
    elif kind == "private selection":
        parameters["one_try"] = lethe.guarantees.GDP(parameters["one_try"]["mu"] * 1.1).to_dict()
    else:
        parameters["noise_std"] *= 0.9
    write_document(tmp_path / "altered.json", altered)
    answers = lethe.verify(tmp_path / "altered.json")
    assert not answers.follows.yes
    assert "does not follow from its mechanism" in answers.follows.why
    with pytest.raises(lethe.InputError, match=r"altered\.json: this statement does not follow"):
        lethe.total([tmp_path / "altered.json"], LEVEL)
    # Parameters of other names, or none, give no number.
    for spoilt in ({}, {**parameters, "extra": 1.0}):
        again = copy.deepcopy(content)
        next(one for one in leaves(again["derivation"]) if one["kind"] == kind)["parameters"] = spoilt
        with pytest.raises(lethe.InputError):
            recheck_statement(Statement.from_dict(again))


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_has_one_too(tmp_path: Path) -> None:
    rows, labels, _ = data()
    scaler, model = (
        PrivateStandardScaler(epsilon=2.0, delta=1e-5),
        LogisticRegression(epsilon=2.0, delta=1e-5, feature_norm=4.0, options=EstimatorOptions(mechanism="objective_perturbation")),
    )
    pipeline: Any = make_pipeline(scaler, model).fit(rows, labels)
    stated = privacy_of(pipeline)
    stated.save(tmp_path / "pipeline.json")
    parts = lethe.total([step.certificate_ for step in (pipeline[0], pipeline[1])], 1e-5)
    whole = lethe.total([tmp_path / "pipeline.json"], 1e-5)
    assert whole.epsilon == pytest.approx(stated.epsilon(1e-5), rel=1e-9)
    assert whole.epsilon == pytest.approx(parts.epsilon, rel=1e-6)
    assert lethe.verify(tmp_path / "pipeline.json").follows.yes
    with pytest.raises(lethe.InputError, match="hold the same release"):
        lethe.total([tmp_path / "pipeline.json", pipeline[0].certificate_], 1e-5)


ODD: list[Any] = [None, -1, "x", [], 1e308, 10**400, 5e-324, float("inf")]


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands, in lists of many entries the first two."""
    if at:
        yield at
    entries = content.items() if isinstance(content, dict) else enumerate(content[:2]) if isinstance(content, list) else ()
    for key, value in entries:
        yield from places(value, (*at, key))


def with_odd(content: dict[str, Any], at: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    inner: Any = changed
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = odd
    return changed


def odd_at(number: int) -> list[Any]:
    """What is tried at a place: by day two of them, others at the next place."""
    return ODD if by_night() else ODD[number % 4 :: 4]


@pytest.mark.parametrize("name", ["LinearRegression", "PrivateMean"])
@pytest.mark.filterwarnings("ignore")  # of ranges that may be too small
def test_a_statement_with_a_nonsense_entry_is_refused_or_no_smaller(name: str) -> None:
    model = fitted(name)
    content = model.statement_.to_dict()
    refused = 0
    for number, at in enumerate(places(content)):
        for odd in odd_at(number):
            try:
                read = recheck_statement(Statement.from_dict(with_odd(content, at, odd))).statement
            except lethe.LetheError:
                refused += 1
            else:
                read.explain()
                assert read.epsilon(LEVEL) >= model.epsilon_ * (1 - 1e-6)
    assert refused > (200 if by_night() else 50)
