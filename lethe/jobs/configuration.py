"""The sections of a training configuration: data, privacy, ledger, model, and the questions in it that nobody has answered yet.

training.py (`lethe train`), demo.py and init.py read and write them; an answer left open is refused, since a default for a range or an
epsilon would be a guess about private data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from lethe.documents.specification import Specification, near_miss
from lethe.errors import InputError, quoted
from lethe.jobs.tables.columns import as_range

UNANSWERED = "???"
"""What `lethe init` writes where only a person may answer."""
FROM_DATA = "from_data"
AUTO = "auto"


def _as_classes(value: Any) -> tuple[str, ...] | None:
    if value is None or value == FROM_DATA:
        return () if value == FROM_DATA else None
    if isinstance(value, list | tuple) and value and all(isinstance(name, str | int) and not isinstance(name, bool) for name in value):
        return tuple(str(name) for name in value)
    raise InputError(f"got {value!r}; it needs a list of class names, or {FROM_DATA}.")


def _as_target_range(value: Any) -> tuple[float, float] | str | None:
    return value if value is None or value == AUTO else as_range(value)


class Privacy(Specification):
    """The target (epsilon, delta), delta below 1/records or said to be meant; epsilon null certifies the run's own noise at delta."""

    delta: float = Field(gt=0, lt=1)
    epsilon: float | None = Field(default=None, gt=0)
    allow_large_delta: bool = False


class Data(Specification):
    """Where the records are.

    Args:
        path: a .csv, .csv.gz, .parquet or .npz file; null: scikit-learn's digits.
        target: the column (or array) to predict.
        target_range: of a regression by a model: [low, high], public; others are truncated. "auto": released, and paid for.
        classes: the public list of classes, or "from_data", which says that the classes found there are public knowledge.
        test_fraction: of the rows, in [0, 1), kept for testing.
    """

    path: str | None = None
    target: str | None = None
    classes: Annotated[tuple[str, ...] | None, BeforeValidator(_as_classes)] = None
    target_range: Annotated[tuple[float, float] | str | None, BeforeValidator(_as_target_range)] = None
    test_fraction: float = Field(default=0.2, ge=0, lt=1)

    @model_validator(mode="after")
    def _complete(self) -> Data:
        if self.path is None and (self.target is not None or self.classes is not None):
            raise InputError("path: missing; a target or classes belong to a file of yours.", remedy="name the file, or drop both.")
        if self.path is not None and self.target is None:
            raise InputError("target: missing; name the column (or array) to predict.")
        return self

    def to_document(self) -> dict[str, Any]:
        """As plain data."""
        classes = None if self.classes is None else list(self.classes) or FROM_DATA
        return {**self.model_dump(mode="json"), "classes": classes}


class LedgerSection(Specification):
    """Which data set's budget pays.

    Args:
        place: of the ledger: a SQLite file, or a URL.
        data_set: its name in the ledger.
        by: who trains; null: the user of this process.
        why: what for.
        slack: the share of delta for a run without an exact price; 0: of an estimator, as `lethe.ledger.Spending` says.
    """

    place: str
    data_set: str
    by: str | None = None
    why: str = ""
    slack: float = Field(default=0.0, ge=0, lt=1)

    def spending(self) -> Any:
        """What `ledger=` of a training takes; an error where the ledger cannot be used."""
        from lethe.ledger import Ledger, Spending  # needs SQLAlchemy, which is optional

        return Spending(Ledger.open(self.place), self.data_set, by=self.by, why=self.why, slack=self.slack)


CLASSIFIERS = {"logistic_regression": "LogisticRegression", "softmax_regression": "SoftmaxRegression", "linear_svc": "LinearSVC"}
REGRESSORS = {
    "linear_regression": "LinearRegression",
    "ridge": "Ridge",
    "lasso": "Lasso",
    "elastic_net": "ElasticNet",
    "huber_regressor": "HuberRegressor",
    "poisson_regressor": "PoissonRegressor",
    "gamma_regressor": "GammaRegressor",
    "tweedie_regressor": "TweedieRegressor",
}
ESTIMATORS = {**CLASSIFIERS, **REGRESSORS}
"""What an estimator is called in a configuration -> its class."""

_ELSEWHERE = {
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
    "allow_large_delta": "privacy.allow_large_delta",
    "random_state": "seed",
    "seed_noise": "seed",
    "classes": "data.classes",
    "target_bound": "data.target_range",
    "ledger": "ledger",
}
_UNUSED = frozenset({"max_weight"})  # the records of a file have no weights
_LARGEST = 1e300


class EstimatorChoice(Specification):
    """One of `ESTIMATORS`, and the parameters of its constructor and of its `EstimatorOptions`, beside each other, but for those that other
    sections state.
    """

    estimator: str
    parameters: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def parse(cls, value: Any) -> EstimatorChoice:
        """From {estimator: name, parameter: value, ...}; InputError of another estimator, or a parameter that belongs elsewhere."""
        if isinstance(value, EstimatorChoice):
            return value
        names = ", ".join(ESTIMATORS)
        if not isinstance(value, Mapping) or "estimator" not in value:
            raise InputError(f"got {quoted(value)}; it needs estimator: one of {names}.")
        fields = {str(name): entry for name, entry in value.items()}
        name = fields.pop("estimator")
        if not isinstance(name, str) or name not in ESTIMATORS:
            raise InputError(f"estimator: got {quoted(name)};{near_miss(name, ESTIMATORS)} it needs one of {names}.")
        for parameter, entry in fields.items():
            if isinstance(entry, int | float) and not abs(entry) < _LARGEST:  # NaN too
                raise InputError(f"{parameter}: got {quoted(entry)}; it needs a finite number, below {_LARGEST:g}.")
            if parameter in _ELSEWHERE:
                raise InputError(f"{parameter}: it is stated as {_ELSEWHERE[parameter]}.", remedy="state it there, and once.")
        return cls(estimator=name, parameters=fields)

    @property
    def is_classifier(self) -> bool:
        """Whether it predicts classes."""
        return self.estimator in CLASSIFIERS

    @property
    def feature_norm(self) -> float | None:
        """The public bound that was stated; None: it is released."""
        stated_norm = self.parameters.get("feature_norm", AUTO)
        return float(stated_norm) if isinstance(stated_norm, int | float) and not isinstance(stated_norm, bool) else None

    def to_document(self) -> dict[str, Any]:
        """As plain data that `parse` takes."""
        return {"estimator": self.estimator, **self.parameters}

    def require_sections(self, privacy: Privacy, data: Data) -> None:
        """Refuse sections that lack what this estimator needs, or have what it does not take."""
        if privacy.epsilon is None:
            raise InputError("privacy.epsilon: missing; an estimator is trained for a target.", remedy="state it, such as epsilon: 1.0.")
        if self.is_classifier:
            if data.target_range is not None:
                raise InputError(f"data.target_range: {self.estimator} predicts classes.", remedy="leave it out.")
            return
        if data.path is None:
            raise InputError(f"data.path: missing; the digits have classes, and {self.estimator} predicts numbers.")
        if data.classes is not None:
            raise InputError(f"data.classes: {self.estimator} predicts numbers.", remedy="leave them out, and state data.target_range.")
        if data.target_range is None:
            raise InputError(
                "data.target_range: missing; where targets lie must be public.",
                remedy=f"state [low, high], known without looking at the records, or {AUTO}: released, for a twentieth of the budget.",
            )

    def build(self, privacy: Privacy, data: Data, *, seed: int | None) -> Any:
        """The estimator, not fitted; with a seed for trials. InputError of a parameter that it does not have, or without scikit-learn."""
        self.require_sections(privacy, data)
        import lethe.estimators as private  # needs the optional scikit-learn

        kind = getattr(private, ESTIMATORS[self.estimator])
        parameter_names = [
            *(name for name in kind().get_params(deep=False) if name not in _ELSEWHERE and name != "options"),
            *sorted(kind.takes_options - _ELSEWHERE.keys() - _UNUSED),
        ]
        for name in self.parameters:
            if name not in parameter_names:
                raise InputError(
                    f"model.{name}: unknown;{near_miss(name, parameter_names)} {self.estimator} knows {', '.join(parameter_names)}."
                )
        options = {name: value for name, value in self.parameters.items() if name in kind.takes_options}
        classes = list(data.classes) if data.classes else None
        return kind(
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            random_state=seed,
            seed_noise=seed is not None,
            **({"classes": classes} if self.is_classifier else {"target_bound": data.target_range}),
            options=private.EstimatorOptions(allow_large_delta=privacy.allow_large_delta, **options),
            **{"neighbours": "replace_one"} | {name: value for name, value in self.parameters.items() if name not in options},
        )


def refuse_unanswered(content: Mapping[str, Any]) -> None:
    """Refuse a configuration in which questions stand that `lethe init` asked, by the names of all of them."""
    if open_questions := list(_unanswered(content, "")):
        raise InputError(
            f"{', '.join(open_questions)}: not answered yet ({UNANSWERED}).",
            remedy="write what is known without looking at the records; the comment beside each says what is asked.",
        )


def _unanswered(value: Any, path: str) -> Iterator[str]:
    if value == UNANSWERED or (isinstance(value, list | tuple) and UNANSWERED in value):
        yield path
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _unanswered(entry, f"{path}.{name}" if path else str(name))
