"""Every estimator's constructor has the parameters that its docstring lists; other words are answered with what to write."""

import inspect
import pickle
import re
from typing import Any

import pytest
from sklearn import decomposition, linear_model, model_selection, preprocessing, svm
from sklearn.base import clone

import lethe.estimators
from lethe.errors import InputError, UnknownArgumentError
from lethe.errors.names import ABSENT
from lethe.estimators.options import EstimatorOptions, options_of
from lethe.estimators.private_estimator import PrivateEstimator

THEIRS = {
    lethe.estimators.LogisticRegression: linear_model.LogisticRegression,
    lethe.estimators.LinearRegression: linear_model.LinearRegression,
    lethe.estimators.Ridge: linear_model.Ridge,
    lethe.estimators.Lasso: linear_model.Lasso,
    lethe.estimators.ElasticNet: linear_model.ElasticNet,
    lethe.estimators.HuberRegressor: linear_model.HuberRegressor,
    lethe.estimators.PoissonRegressor: linear_model.PoissonRegressor,
    lethe.estimators.GammaRegressor: linear_model.GammaRegressor,
    lethe.estimators.TweedieRegressor: linear_model.TweedieRegressor,
    lethe.estimators.LinearSVC: svm.LinearSVC,
    lethe.estimators.PrivateStandardScaler: preprocessing.StandardScaler,
    lethe.estimators.PublicScaler: preprocessing.MinMaxScaler,
    lethe.estimators.PrivatePCA: decomposition.PCA,
    lethe.estimators.PrivateSearch: model_selection.GridSearchCV,
}
MAX_ITER = {"max_iter": "write options=EstimatorOptions(passes=...)"}
CLASSES = [each for name in lethe.estimators.__all__ if isinstance(each := getattr(lethe.estimators, name), type)]


def described(kind: type) -> set[str]:
    """The parameters under Args, those included that it says are as of another class."""
    text = inspect.cleandoc(kind.__doc__ or "")
    if whole := re.search(r"^Args: as of `(\w+)`", text, re.MULTILINE):
        return described(next(base for base in kind.__mro__ if base.__name__ == whole[1]))
    entries = re.findall(r"^ {4}(\w[\w, ]*): ", text.split("\nArgs:\n")[1], re.MULTILINE)
    return {name for names in entries for name in names.split(", ")}


@pytest.mark.parametrize("estimator", CLASSES, ids=lambda each: each.__name__)
def test_the_docstring_lists_the_parameters_of_the_constructor(estimator: type) -> None:
    assert described(estimator) == {*inspect.signature(estimator).parameters}


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_epsilon_is_always_shown_and_once(epsilon: float) -> None:
    assert repr(lethe.estimators.Ridge(epsilon=epsilon, alpha=0.5)).count(f"epsilon={epsilon}") == 1


@pytest.mark.parametrize("estimator", THEIRS, ids=lambda each: each.__name__)
def test_every_parameter_of_scikit_learn_s_class_is_taken_or_answered_with_what_to_do(estimator: Any) -> None:
    for word in inspect.signature(THEIRS[estimator]).parameters:
        if word not in inspect.signature(estimator).parameters:
            with pytest.raises(UnknownArgumentError) as raised:
                estimator(**{word: 1})
            meant = re.search(r"did you mean '(\w+)'", str(raised.value))
            answered = ABSENT if word != "max_iter" else MAX_ITER
            assert (meant is None) == (word in answered), word
            assert meant is None or (word, meant[1]) in {("penalty", "C"), ("param_grid", "candidates")}
            assert meant is not None or str(raised.value.remedy).startswith(answered[word])


# Option, a value of it, and what was its name where that was another.
OPTIONS: dict[str, Any] = {
    "allow_large_delta": True,
    "mechanism": "cyclic",
    "batches": "full",
    "passes": 20,
    "schedule": "pass_ends",
    "release": "all",
    "whiten": False,
    "narrow_range": False,
    "max_weight": 2.0,
    "rows_per_user": 3,
    "parameters": "theory",
    "order": 4.0,
    "strong_convexity": 0.1,
    "shares": {"model": 1.0},
}
ESTIMATORS = [each for each in CLASSES if issubclass(each, PrivateEstimator) and not inspect.isabstract(each)]
WHERE = [(each, name) for each in ESTIMATORS for name in sorted(each.takes_options)]


def some(kind: Any, **parameters: Any) -> Any:
    return kind(*([lethe.estimators.Ridge(), {}] if kind is lethe.estimators.PrivateSearch else []), **parameters)


def test_an_estimator_has_at_most_twelve_parameters_a_search_thirteen_and_options_are_fourteen() -> None:
    most = {EstimatorOptions: 14, lethe.estimators.PrivateSearch: 13}
    assert all(len(inspect.signature(each).parameters) <= most.get(each, 12) for each in CLASSES)
    assert {*OPTIONS} == {*inspect.signature(EstimatorOptions).parameters} == {name for _, name in WHERE}
    assert len(OPTIONS) <= 14


@pytest.mark.parametrize(("kind", "name"), WHERE)
def test_an_option_among_the_parameters_is_answered_with_where_it_is(kind: Any, name: str) -> None:
    with pytest.raises(UnknownArgumentError) as raised:
        some(kind, **{name: OPTIONS[name]})
    assert str(raised.value).count("\n") <= 2
    with pytest.raises(UnknownArgumentError, match=re.escape(str(raised.value.remedy))):
        some(kind).set_params(**{name: OPTIONS[name]})
    written = str(raised.value.remedy).removeprefix("write ").replace("...", repr(OPTIONS[name]))
    model = eval(f"some(kind, {written})", {"some": some, "kind": kind, "EstimatorOptions": EstimatorOptions})
    assert model.options == EstimatorOptions(**{name: OPTIONS[name]})


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda each: each.__name__)
def test_options_are_set_cloned_pickled_and_shown(kind: Any) -> None:
    name = max(kind.takes_options)
    model = some(kind).set_params(**{f"options__{name}": OPTIONS[name]})
    shared = model.options
    assert shared == EstimatorOptions(**{name: OPTIONS[name]})
    assert model.get_params()[f"options__{name}"] == OPTIONS[name]
    assert f"options=EstimatorOptions({name}={OPTIONS[name]!r})" in " ".join(repr(model).split())
    copies: tuple[Any, ...] = (clone(model), pickle.loads(pickle.dumps(model)))
    for other in copies:
        assert other.options == shared
    model.set_params(options__allow_large_delta=True)
    assert not shared.allow_large_delta or name == "allow_large_delta"  # it does not change
    assert getattr(model.options, name) == OPTIONS[name]


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_another_estimator_is_refused(kind: Any, name: str) -> None:
    model = some(kind, options=EstimatorOptions(**{name: OPTIONS[name]}))
    if name in kind.takes_options:
        assert options_of(model) is model.options
    else:
        with pytest.raises(InputError, match=f"options.{name}: {kind.__name__} has no such option"):
            options_of(model)


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda each: each.__name__)
def test_the_relation_that_is_not_named_is_the_one_that_is_proved(kind: Any) -> None:
    heavy = {"HeavyTailedLinearRegression", "HeavyTailedLogisticRegression", "PrivateMean"}
    assert some(kind).neighbours == ("replace_one" if kind.__name__ in heavy else "zero_out")
