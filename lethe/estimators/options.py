"""EstimatorOptions: options of `fit` that few users need; and the answers for parameters of other libraries that are none here.

Every estimator takes them as `options=`, so that its constructor has few parameters; `options_of` is called in `fit` and refuses those that
do not belong to the estimator. `answers` tells whoever writes another library's word what to write.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from lethe.errors import InputError, quoted
from lethe.errors.names import ABSENT, SYNONYMS, in_other_words


@in_other_words
@dataclass(frozen=True, kw_only=True, repr=False)
class EstimatorOptions:
    r"""Options of the estimators, which do not change; `model.set_params(options__passes=20)` puts others in their place.

    An estimator takes those that belong to it, and refuses the others in `fit`.

    Args:
        allow_large_delta: whether a delta >= 1/n is meant; `privacy_report_` then says so. Of every estimator.
        mechanism: of linear models "auto": of least predicted risk, from public facts only; "sgd": the best of the runs; or a name of
            `MECHANISMS`. Of heavy-tailed models "auto", "multi_pass", "one_pass", "accelerated", "proximal", "localised",
            "sampled_localised" or "strongly_convex"; of `PrivateMean` "auto" ("clipped_mean"), "clipped_mean" or "multi_pass".
        batches: "auto", "cyclic", "poisson", "cyclic_poisson" or "full"; other than "auto" it asks for a run.
        passes: over the data. Linear models: "auto": by a rule on public facts; a number asks for a run. Heavy-tailed models: those of
            multi_pass; "auto": 30, of `PrivateMean` 10.
        schedule: of the noise: "auto", "uniform", "pass_ends" or "correlated"; other than "auto" it asks for a run.
        release: "last": what is kept is certified; "all": so is every iterate of the run that trains it, whoever sees them; it asks for a
            run with noise at every step, and the result may be the mean of the last iterates.
        whiten: whether rows are first centred by a private mean and whitened by a private covariance, for a tenth of the budget (in
            squared mu; of a regression a twentieth); or, of classes, where a covariance would drown in its noise, centred alone, for .03.
            A penalty then is of such rows, as behind a StandardScaler. "auto": where mechanism = "auto" may choose, the table is a dense
            one in memory of at most 1024 columns, each row a record, and an intercept is fitted. In both cases not where nothing could be
            told from noise, by public facts. Models with an l1 penalty never do: their weights would not be sparse.
        narrow_range: whether a range of targets that was given is first narrowed by their private mean and second moment, for a
            hundredth of the budget (in squared mu); it stays as it is where they fill it. "auto": where mechanism = "auto" may choose,
            the table is in memory, and each row is a record. Of so few records that noise would hide all, nothing is released either way.
        max_weight: a public bound on the sample weights of linear models.
        rows_per_user: where `fit` is given users: the most rows of a user that are used, chosen at random; None: all.
        parameters: of heavy-tailed models: "practical", "theory" or "optimised": see `lethe.heavy_tailed`.
        order: of heavy-tailed models: k >= 2 of the moment.
        strong_convexity: of heavy-tailed models: public $\mu$ of the expected loss; None: not known. For one_pass, proximal and
            strongly_convex.
        shares: of the private steps of a pipeline that `PrivateSearch` searches, numbers > 0 by name of the step, in proportion (of
            squared mu where all are Gaussian); None: four fifths for the model, the rest in equal parts.
    Raises: UnknownArgumentError: there is no such option.
    """

    allow_large_delta: bool = False
    mechanism: str = "auto"
    batches: str = "auto"
    passes: int | str = "auto"
    schedule: str = "auto"
    release: str = "last"
    whiten: bool | str = "auto"
    narrow_range: bool | str = "auto"
    max_weight: float = 1.0
    rows_per_user: int | None = None
    parameters: str = "practical"
    order: float = 2.0
    strong_convexity: float | None = None
    shares: Mapping[str, float] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.changed())})"

    def changed(self) -> Iterator[str]:
        """The names of those that are not at their defaults."""
        return (field.name for field in fields(self) if repr(getattr(self, field.name)) != repr(field.default))


def options_of(estimator: Any) -> EstimatorOptions:
    """Those of an estimator, each at its default where there are none."""
    options, name = estimator.options, type(estimator).__name__
    if options is None:
        return EstimatorOptions()
    source = f"the parameter options of {name}"
    if not isinstance(options, EstimatorOptions):
        what = f"options: got {quoted(options)}; it needs EstimatorOptions."
        raise InputError(what, source=source, remedy="write options=EstimatorOptions(...)")
    for option in options.changed():
        if option not in estimator.takes_options:
            what = f"options.{option}: {name} has no such option; it takes {', '.join(sorted(estimator.takes_options))}."
            raise InputError(what, source=source, remedy="leave it out")
    return options


def answers(parameters: Collection[str], options: Collection[str]) -> Mapping[str, str]:
    """What to write in the place of each word that a class with these parameters and options does not take."""
    remedies = {name: f"write options=EstimatorOptions({name}=...)" for name in options}
    for word, meant in SYNONYMS.items():  # of another library, for an option
        name = next((name for name in meant.names if name in parameters or name in options), None)
        if name in remedies and name not in parameters:
            remedies.setdefault(word, f"{remedies[name]}{f': {meant.note}' if meant.note else ''}")
    if "parameters" in options:
        remedies["solver"] = remedies["mechanism"]
    if "tries" in parameters:
        remedies["eta"] = "write tries=(10.0, ...): the mean of the number of tries, and eta of its law"
    return {**ABSENT, **remedies}
