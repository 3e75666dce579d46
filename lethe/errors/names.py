"""Names that are not there, and the ones that are meant: American spellings are taken; other libraries' words, and names that a package
has no more, are refused with what to write.

Constructors and functions of the public API are decorated by `in_other_words`; packages call `refuse_old_name`, specifications
`did_you_mean`. A parameter that is silently ignored could be the one that sets the noise.
"""

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from lethe.errors import InputError, UnknownArgumentError

CallableT = TypeVar("CallableT", bound=Callable[..., Any])

SPELLINGS = {"neighbors": "neighbours", "regularizer": "regulariser", "regularizers": "regularisers"}
"""American spelling -> the one that documents hold."""


class Meant(NamedTuple):
    """What a word of another library is called here: its names, of which one is known, and how the units differ."""

    names: tuple[str, ...]
    note: str = ""


# Words of other libraries | the names here | how the units differ; a line that begins with a space goes on.
_MEANINGS = """\
epochs n_epochs num_epochs epoch | passes | a pass takes as many batches as there are in the data
max_iter | passes steps | a number of passes or steps that is carried out, not a limit: what is not taken is not saved
n_steps num_steps max_steps iterations n_iter num_iterations | steps passes | one step takes one batch
lr learning_rate eta0 stepsize learning_rate_init | step_size | the factor of the mean gradient of a batch, as in SGD on a mean loss
max_grad_norm l2_norm_clip l2_clip_norm clipping_norm clip clip_value clipping_bound max_norm gradient_clip
 | clip_norm max_grad_norm feature_norm | the norm that each record's gradient is clipped to
sigma noise_std noise_scale noise_mult noise_multipliers noise_level noise_stddev | noise_multiplier
 | relative to clip_norm, on the sum of the gradients as in Opacus: a standard deviation on the sum is to be divided by clip_norm, one
 on the mean multiplied by batch size / clip_norm. Opacus counts by add_or_remove; under replace_one the same number costs more
batch_size batchsize expected_batch_size lot_size minibatch_size | batches size physical_size
 | a batch size says nothing of how records are drawn: RandomAllocation(size=...) in shuffled epochs, Poisson(size=...) as in Opacus,
 Cyclic(size=...) in a fixed order, Shuffled(size=...)
max_physical_batch_size physical_batch_size microbatch_size num_microbatches microbatches
 | physical_size | how many records are on the device at once
sample_rate sampling_rate sampling_probability poisson_sampling batch_sampler
 | batches size | Poisson(size=...) with size = sampling probability * records
n n_samples num_samples sample_size dataset_size num_examples n_records population | records | the public number of records
weight_decay l2 l2_regularization lambda_ reg | regulariser alpha C
 | regulariser={kind: ridge, strength: ...}; added inside each loss it is part of the loss
penalty | C alpha regulariser
 | the class says which penalty; C is 1/strength on the sum of losses as in scikit-learn, alpha the strength
data_norm max_norm_rows row_norm norm | feature_norm bounds clip_norm | the largest Euclidean norm of a row, a public number
bounds_X bounds data_range range | bounds feature_norm ranges | public numbers, never read off the records
bounds_y | target_bound | public numbers, never read off the records
random_seed seed random_state rng | random_state seed |
target_epsilon eps privacy_budget total_epsilon | epsilon max_epsilon |
target_delta privacy_delta | delta |
neighboring_relation neighbouring_relation adjacency relation | neighbours
 | "add_or_remove" is what Opacus counts by, "replace_one" costs up to twice as much noise
param_grid param_distributions | candidates | lists of values by name, as of ParameterGrid; all of them public
optimiser | optimizer |
secure_mode | secure | noise from the operating system's cryptographic source
accountant | run | none is chosen: every theorem that applies is tried, and the smallest epsilon that is proved counts
criterion loss_fn loss_function | loss |
data_loader dataloader train_loader dataset train_data | data | the data set, not a loader"""
_ROWS = [[part.strip() for part in row.split("|")] for row in _MEANINGS.replace("\n ", " ").splitlines()]
SYNONYMS: Mapping[str, Meant] = {word: Meant(tuple(names.split()), note) for words, names, note in _ROWS for word in words.split()}
"""A word of another library -> what is meant."""

OF_THE_RUN = ("records", "batches", "passes", "steps", "step_size", "clip_norm", "noise_multiplier", "neighbours", "regulariser", "release")
"""Fields of a Run that people look for among the arguments of a function that takes one."""

_A_SLIP = 0.75
"""Of difflib's ratio: "lose" is a slip of "loss"; class_weight, at .73 of max_weight, means another thing."""


def did_you_mean(word: str, vocabulary: Collection[str]) -> str:
    """A hint such as " did you mean 'passes'? (a pass ...)", or empty text; of what a run says, where one is taken, a hint at the run."""
    names, note = SYNONYMS.get(word, SYNONYMS.get(word.lower(), Meant(())))
    note = f" ({note})" if note else ""
    for name in names:
        if name in vocabulary:
            return f" did you mean {name!r}?{note}"
    if "run" in vocabulary:
        for name in (word, *names):
            if name in OF_THE_RUN:
                return f" did you mean that of the run, lethe.Run({name}=...)?{note}"
            if name in ("epsilon", "delta"):
                return " did you mean to plan the run for it, run = lethe.plan(run, epsilon=..., delta=...)?"
    near = difflib.get_close_matches(word, list(vocabulary), n=1, cutoff=_A_SLIP)
    near = near or [name for name in vocabulary if {*word.split("_")} < {*name.split("_")}][:1]  # part of a longer name
    return f" did you mean {near[0]!r}?" if near else ""


def respelt(arguments: Mapping[str, Any], parameters: Collection[str]) -> dict[str, Any]:
    """The arguments, those in American spelling under the name that is known; InputError of one in both spellings."""
    renamed: dict[str, Any] = {}
    for name, value in arguments.items():
        name_here = SPELLINGS.get(name, name)
        if name in parameters or name_here not in parameters:
            name_here = name
        elif name_here != name and name_here in arguments:
            raise InputError(
                f"{name_here}: given as {name_here!r} and as {name!r}.", remedy=f"keep one of the two; documents hold {name_here!r}."
            )
        renamed[name_here] = value
    return renamed


def in_other_words(function: CallableT) -> CallableT:
    """A function, or a class, that takes the American spellings too, and refuses an unknown argument with the name that is meant."""
    return answering({})(function)


def answering(elsewhere: Mapping[str, str]) -> Callable[[CallableT], CallableT]:
    """`in_other_words`, with answers of its own: words that the function does not take, with what to write for each."""

    def decorate(function: CallableT) -> CallableT:
        if isinstance(function, type):
            function.__init__ = decorate(cast(Any, function.__init__))
            return cast(CallableT, function)
        parameters = inspect.signature(function).parameters
        open_ended = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        accepted = [
            name for name, parameter in parameters.items() if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY and name != "self"
        ]
        name = function.__qualname__

        @functools.wraps(function)
        def checked(*args: Any, **arguments: Any) -> Any:
            if not arguments.keys() <= parameters.keys():
                arguments = respelt(arguments, accepted)
                for word in arguments:
                    if word not in accepted and (word in elsewhere or not open_ended):
                        # Of a constructor that is inherited the class that was called is named.
                        owner = type(args[0]).__qualname__ if name.endswith(".__init__") else name
                        raise unknown_argument(word, owner, accepted, elsewhere)
            return function(*args, **arguments)

        return cast(CallableT, checked)

    return decorate


def unknown_argument(word: str, owner: str, accepted: Collection[str], elsewhere: Mapping[str, str]) -> UnknownArgumentError:
    """The error for an argument that there is not: with what to write instead, or with the name that may be meant and all there are.

    Args:
        word: that argument.
        owner: the function or class.
        known: the arguments that it takes.
        elsewhere: words that it does not take, with what to write for each.
    """
    if word in elsewhere:
        return UnknownArgumentError(f"{word}: {owner} takes no such argument.", remedy=elsewhere[word])
    return UnknownArgumentError(f"{word}: {owner} takes no such argument;{did_you_mean(word, accepted)} it knows {', '.join(accepted)}.")


RENAMED = {
    "lethe.Ridge": "lethe.regularisers.L2",
    "lethe.ElasticNet": "lethe.regularisers.L1L2",
    "lethe.audit.Rule": "lethe.audit.statistics.rules.ThresholdRule",
    "lethe.estimators.MECHANISMS": "lethe.estimators.choice.choose.NAMES",
    "lethe.features.RandomConvolutions2d": "lethe.estimators.features.modules.RandomConvolutions2d",
    "lethe.features.Scattering2d": "lethe.estimators.features.modules.Scattering2d",
    "lethe.features.synthetic_images": "lethe.estimators.features.images.synthetic_images",
    "lethe.heavy_tailed.Ball": "lethe.heavy_tailed.BallDomain",
    "lethe.heavy_tailed.Box": "lethe.heavy_tailed.sets.BoxDomain",
    "lethe.ledger.Line": "lethe.ledger.accounts.Reservation",
    "lethe.train.TrainingCallback": "lethe.train.Callback",
    "lethe.train.clip.Part": "lethe.train.clip.parts.part.ParameterGradients",
    "lethe.train.clip.Rows": "lethe.train.clip.parts.part.MaterialisedGradients",
    "lethe.train.clip.register_rule": "lethe.train.register_rule",
}
NAMESPACES = ("batches", "guarantees", "losses", "noise", "regularisers", "schedules")


def refuse_old_name(package: str, name: str) -> NoReturn:
    """What `package` answers by for a name that it does not have: an InputError with the name to write, where there is one.

    An AttributeError's text would be hidden by `from package import name`.
    """
    if not name.startswith("_") and (new := RENAMED.get(f"{package}.{name}") or _definition(package, name)):
        raise InputError(f"{package} has no {name}.", remedy=f"write {new}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def _definition(package: str, name: str) -> str | None:
    """The namespace that lists the name, if it is asked of `lethe`; else the module of the package that defines it."""
    for home in NAMESPACES if package == "lethe" else ():
        if name in sys.modules[f"lethe.{home}"].__all__:
            return f"lethe.{home}.{name}"
    root = Path(__file__).parents[1]
    defines = re.compile(rf"^(?:class |def )?{re.escape(name)}\b(?:[(:]| =)", flags=re.MULTILINE)
    folder = root.joinpath(*package.split(".")[1:])
    if (folder / name).is_dir():  # a package that nobody has imported yet
        return None
    for file in sorted(folder.rglob("*.py")):
        if defines.search(file.read_text()):
            return f"{'.'.join(file.relative_to(root.parent).with_suffix('').parts).removesuffix('.__init__')}.{name}"
    return None


_HOW = "leave it out: the option mechanism says how a model is trained, and 'auto' chooses; other estimators have one way"
_TO_THE_END = "leave it out: what was planned is carried out to its end, since how much noise it needs was planned for that"
_ONE_SCORE = (
    "leave it out: PrivateSearch scores candidates once, on the share held_out, by what its parameter scoring says; each fold or score "
    "more would cost privacy"
)
_ONE_PROCESS = "leave it out: a fit is not divided among processes; of a Dask table its workers read their own blocks"

ABSENT: Mapping[str, str] = {
    "class_weight": "leave it out: LogisticRegression and SoftmaxRegression take it, as a public dict",
    "warm_start": "leave it out: every fit begins anew and costs its epsilon; for longer training ask one fit for more passes, an option",
    **dict.fromkeys(("solver", "dual", "svd_solver", "algorithm", "selection", "precompute", "max_fun"), _HOW),
    **dict.fromkeys(("iterated_power", "n_oversamples", "power_iteration_normalizer"), _HOW),
    **dict.fromkeys(("tol", "early_stopping", "validation_fraction", "n_iter_no_change"), _TO_THE_END),
    **dict.fromkeys(("copy", "copy_X"), "leave it out: the records are never written to"),
    **dict.fromkeys(("n_jobs", "pre_dispatch"), _ONE_PROCESS),
    **dict.fromkeys(("cv", "scoring", "refit", "error_score", "return_train_score"), _ONE_SCORE),
    "verbose": "leave it out: privacy_report_ says what was done, after the fit",
    "intercept_scaling": "leave it out: the intercept is a constant feature of three tenths of feature_norm",
    "multi_class": "leave it out: all classes are trained in one loss",
    "positive": "leave it out: no model here keeps its weights above 0",
    "normalize": "leave it out, and put PublicScaler or PrivateStandardScaler before the model, in a pipeline",
    "loss": "the class says which: LogisticRegression, LinearSVC, LinearRegression, HuberRegressor",
    "link": "leave it out: counts and costs have the logarithm; for a linear mean take Ridge",
    "l1_ratio": "take Lasso or ElasticNet, which have an l1 penalty; this class has none",
    **dict.fromkeys(("with_mean", "with_std"), "leave it out: means and scales are released together, in one mechanism"),
    "feature_range": "write PublicScaler(low=..., high=...): the ranges of the columns that were known before; they become [-1, 1]",
    "whiten": "put PrivateWhitening in its place, or behind it",
    "accountant": "leave it out: privacy_of([first, second]) adds fits up, and ledger=lethe.ledger.Spending(...) counts and limits them",
}
"""Words of scikit-learn and diffprivlib that are no parameters here -> what to do instead."""
