"""Words that are no parameters of an estimator: those of scikit-learn and diffprivlib, and the options; each with what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lethe.documents.synonyms import SYNONYMS

_HOW = "leave it out: the option mechanism says how a model is trained, and 'auto' chooses; other estimators have one way"
_TO_THE_END = "leave it out: what was planned is carried out to its end, since how much noise it needs was planned for that"
_ONE_SCORE = (
    "leave it out: PrivateSearch scores candidates on the share held_out, by accuracy or, with score_bound, by bounded residuals; each "
    "fold or score more would cost privacy"
)
_UNCHANGED = "leave it out: the records are never written to"
_ONE_PROCESS = "leave it out: a fit is not divided among processes; of a Dask table its workers read their own blocks"
_RANGES = "write PublicScaler(low=..., high=...): the ranges of the columns that were known before; they become [-1, 1]"

ABSENT: Mapping[str, str] = {
    "class_weight": "leave it out, and give each record a public weight of its class: model.fit(X, y, sample_weight=...) of a linear "
    "model, with the option max_weight the largest of them; 'balanced' would read weights off the labels",
    "warm_start": "leave it out: every fit begins anew and costs its epsilon; for longer training ask one fit for more passes, an option",
    **dict.fromkeys(("solver", "dual", "svd_solver", "algorithm", "selection", "precompute", "max_fun"), _HOW),
    **dict.fromkeys(("iterated_power", "n_oversamples", "power_iteration_normalizer"), _HOW),
    **dict.fromkeys(("tol", "early_stopping", "validation_fraction", "n_iter_no_change"), _TO_THE_END),
    **dict.fromkeys(("copy", "copy_X"), _UNCHANGED),
    **dict.fromkeys(("n_jobs", "pre_dispatch"), _ONE_PROCESS),
    **dict.fromkeys(("cv", "scoring", "refit", "error_score", "return_train_score"), _ONE_SCORE),
    "verbose": "leave it out: privacy_report_ says what was done, after the fit",
    "intercept_scaling": "leave it out: the intercept is a constant feature of three tenths of feature_norm",
    "multi_class": "leave it out: all classes are trained in one loss",
    "positive": "leave it out: no model here keeps its weights above 0",
    "normalize": "leave it out, and put PublicScaler or PrivateStandardScaler before the model, in a pipeline",
    "loss": "the class says which: LogisticRegression, LinearSVC, LinearRegression, HuberRegressor",
    "l1_ratio": "take Lasso or ElasticNet, which have an l1 penalty; this class has none",
    **dict.fromkeys(("with_mean", "with_std"), "leave it out: means and scales are released together, in one mechanism"),
    "feature_range": _RANGES,
    "whiten": "put PrivateWhitening in its place, or behind it",
    "accountant": "leave it out: privacy_of([first, second]) adds fits up, and ledger=lethe.ledger.Spending(...) counts and limits them",
}
"""Parameter -> what to do, for a class that has none of that name."""


def answers(known: Collection[str], options: Collection[str]) -> Mapping[str, str]:
    """What to write in the place of each word that a class does not take.

    Args:
        known: the parameters of its constructor.
        options: those of `EstimatorOptions` that it takes.
    """
    found = {name: f"write options=EstimatorOptions({name}=...)" for name in options}
    for word, meant in SYNONYMS.items():  # of another library, for an option
        name = next((name for name in meant.names if name in known or name in options), None)
        if name in found and name not in known:
            found.setdefault(word, f"{found[name]}{f': {meant.note}' if meant.note else ''}")
    if "parameters" in options:
        found["solver"] = found["mechanism"]
    if "tries" in known:
        found["eta"] = "write tries=(10.0, ...): the mean of the number of tries, and eta of its law"
    return {**ABSENT, **found}
