"""PrivateEstimator: what every estimator shares. All checks are in fit; nothing of the data is kept but what was released.

Models, transformers and the search derive from it: parameters and their checks, budget, ledger, `certificate_`, `epsilon_` and the report
are written here once.
"""

import inspect
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state

from lethe.calculus.domains import require_switch
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import Finding
from lethe.certificates.privacy_report import privacy_report
from lethe.certificates.records import ReleaseRecord, TrainingRecord
from lethe.certificates.statement import Statement
from lethe.documents.shortened import html_table
from lethe.errors import InputError
from lethe.errors.names import answering, respelt, unknown_argument
from lethe.estimators.budget import PrivacyBudget, paid, planned_statement, sent_along, whole_budget
from lethe.estimators.choice.mechanism import RandomSources
from lethe.estimators.choice.runs import certified
from lethe.estimators.options import EstimatorOptions, answers, options_of
from lethe.mechanisms.base import joint
from lethe.run.active_spender import spender_in_force
from lethe.run.participation import NOUNS, Unit
from lethe.run.run import Neighbours

_NESTED = "options__"
OWN_FIT = (
    "That is about this fit alone, given the rows it was called with; of a pipeline ask privacy_of(pipeline).",
    "Not in it: earlier steps, or you, who learned from the records to make those rows (a StandardScaler's mean, say).",
)
"""Lines below the headline of an estimator's own report."""
KNOWN_AT_FIT: list[Callable[[Any], tuple[Finding, ...]]] = []
"""What a fit that is about to be stated knows of its callers: `lethe.estimators.pipelines.callers`, which stands above this."""
MadeT = TypeVar("MadeT")


def _answer_words(cls: Any) -> None:
    """Let the constructor that a class has of its own answer words that it does not take with what to write."""
    cls._answers = answers(inspect.signature(cls).parameters, cls.takes_options)
    if "__init__" in vars(cls):
        cls.__init__ = answering(cls._answers)(cls.__init__)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def with_constructor(cls: type[MadeT]) -> type[MadeT]:
    """Give a class of estimators the constructor that takes its fields, and those of its bases, by name."""
    dataclass(kw_only=True, eq=False, repr=False)(cls)
    _answer_words(cls)
    return cls


@with_constructor
class PrivateEstimator(BaseEstimator):
    r"""An estimator whose fit is $(\epsilon, \delta)$-differentially private, and says so.

    Formal guarantee: for every two data sets that are neighbours, the laws of everything `fit` keeps satisfy the guarantee of
    `statement_`. The number of records, the number and names of the columns, the class labels and the parameters are public.

    Args:
        epsilon: the target, > 0, for everything that fit releases together.
        delta: in (0, 1), and below 1/n; None: the smaller of 1e-5 and 1/(10 n).
        neighbours: "zero_out": one record's contribution becomes zero; or "replace_one", which takes up to twice the noise.
        random_state: for public choices only, such as the order of the records; noise and secret draws come from fresh entropy.
        seed_noise: True: noise and secret draws are repeatable from random_state too, and two fits with one random_state share them. For
            tests: whoever knows random_state knows the noise, so that the statement is no guarantee, and `epsilon_` is infinite.
        ledger: `lethe.ledger.Spending(ledger, "patients")`: pays for every fit, those of clones in other processes included. What a fit is
            going to cost is reserved before anything is released. None: what `lethe.ledger.spending` put in force, or nothing.
        options: `EstimatorOptions`, of what few fits ask for; None: all at their defaults.
    Attributes: `statement_` (a Statement, for `privacy_of`), `certificate_` (the same, but for a run a Certificate), `epsilon_` and
    `delta_` as certified, `privacy_report_`, `n_samples_seen_` (n, public), `n_features_in_`, `feature_names_in_`.
    """

    epsilon: float = 1.0
    delta: float | None = None
    neighbours: Neighbours = "zero_out"
    random_state: Any = None
    seed_noise: bool = False
    ledger: Any = None
    options: EstimatorOptions | None = None

    takes_options: ClassVar[frozenset[str]] = frozenset({"allow_large_delta"})
    _answers: ClassVar[Mapping[str, str]] = {}
    statement_: Statement = field(init=False)
    _proof: Statement | Certificate | TrainingRecord | ReleaseRecord = field(init=False)
    _settle: Callable[[Statement], None] | None = field(init=False)
    _callers: tuple[Finding, ...] = field(init=False)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        _answer_words(cls)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As scikit-learn's; with `deep` the options that the class takes are among them, as options__passes."""
        parameters: dict[str, Any] = super().get_params(deep)
        options = EstimatorOptions() if parameters.get("options") is None else parameters["options"]
        if deep and isinstance(options, EstimatorOptions):
            parameters |= {f"{_NESTED}{name}": getattr(options, name) for name in sorted(self.takes_options)}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """As scikit-learn's, in both spellings; options__passes=20 puts other options in the place of those there were.

        Raises:
            UnknownArgumentError: a parameter or an option that there is not.
        """
        signature = inspect.signature(type(self)).parameters
        arguments = respelt(parameters, signature)
        for name in arguments:
            if name.partition("__")[0] not in signature:
                raise unknown_argument(name, type(self).__name__, signature, self._answers)
        options = {name.removeprefix(_NESTED): arguments.pop(name) for name in list(arguments) if name.startswith(_NESTED)}
        if options:
            changed = arguments.get("options", self.options)
            arguments["options"] = replace(EstimatorOptions() if changed is None else changed, **options)
        return super().set_params(**arguments)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # scikit-learn's name
        """With the epsilon always, which scikit-learn hides at its default."""
        text = super().__repr__(N_CHAR_MAX)
        if not (get_config()["print_changed_only"] and repr(self.epsilon) == "1.0") and f"epsilon={self.epsilon!r}" in text:
            return text
        name, rest = text.split("(", maxsplit=1)
        return f"{name}(epsilon={self.epsilon!r}{'' if rest == ')' else ', '}{rest}"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = not self.seed_noise
        return tags

    def _html_repr(self) -> str:
        """scikit-learn's diagram, and once it is fitted how private the result is; what notebooks show."""
        diagram = super()._html_repr()
        if "privacy_report_" not in vars(self):
            return diagram
        stated, private = self.statement_, self.epsilon_ < math.inf
        title = f"({shown(self.epsilon_)}, {self.delta_:g})-DP" if private else "NOT PRIVATE: no epsilon is proved"
        rows = [("for", f"neighbours {stated.neighbours}, {self.n_samples_seen_} {NOUNS[stated.unit][1]}"), ("released", stated.name)]
        rows += [
            (finding.evidence if finding.status == "holds" else "FAILS", f"{finding.name}: {finding.words}") for finding in stated.findings
        ]
        return f"{diagram}{html_table(f'privacy: {title}', (), rows)}"

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: of the ledger its address, so that another process pays with it, and one without a ledger can predict."""
        parent_state: Any = super().__getstate__()
        state: dict[str, Any] = {**parent_state}
        state.pop("_settle", None)
        if "ledger" in state:
            state["ledger"] = sent_along(state["ledger"])
        return state

    def _pay(self, planned: Callable[[], Guarantee], budget: PrivacyBudget, records: int, *, unit: Unit = "record") -> None:
        """Reserve what this fit will cost, `planned` of all its releases, where something pays; before any of a record."""

        def stated() -> Statement:
            named = f"a fit of {type(self).__name__}"
            return planned_statement(named, planned(), neighbours=self.neighbours, unit=unit, records=records, delta=budget.delta)

        self._settle = paid(self.ledger, stated, seeded=bool(self.seed_noise))

    def _budget(self, records: int) -> PrivacyBudget:
        """The whole of it, for n records; the parameters that belong to it are checked."""
        allowed = require_switch("allow_large_delta", options_of(self).allow_large_delta)
        return whole_budget(self.epsilon, self.delta, records, self.neighbours, large=allowed)

    def _randomness(self, records: int, *, stored_order: bool = False) -> RandomSources:
        return randomness(self.random_state, self.seed_noise, records, stored_order=stored_order)

    @property
    def certificate_(self) -> Statement | Certificate:
        """The certificate, where a run is all that was released, else the statement; of linear models signed when it is first asked for.

        Raises:
            InputError: there is no key to sign with.
        """
        proof = vars(self).get("_proof")
        if proof is None:
            raise AttributeError("certificate_: there is none before fit.")
        if isinstance(proof, TrainingRecord):
            proof = self._proof = certified(proof.run, self.delta_).sealed(proof)
        elif isinstance(proof, ReleaseRecord):
            proof = self._proof = Statement.sealed(proof)
        return proof

    @certificate_.setter
    def certificate_(self, proof: Statement) -> None:
        self._proof = proof

    def _state(
        self,
        parts: Sequence[Statement],
        budget: PrivacyBudget,
        records: int,
        *,
        why: Sequence[str],
        public: Sequence[str],
        total: Statement | None = None,
    ) -> None:
        """Set what says how private the result is."""
        if total is None:
            total = parts[0] if len(parts) == 1 else joint(parts)
        self._callers = tuple(finding for look in KNOWN_AT_FIT for finding in look(self))
        findings = (*total.findings, *self._callers)
        # A random number tells this fit from others with the same parameters, and says nothing of the data.
        total = replace(total, records=records, target_delta=budget.delta, release_id=secrets.token_hex(16), findings=findings)
        if self.seed_noise:
            total = replace(total, seeded=True)
        settle = vars(self).pop("_settle", None)
        if settle is not None:
            settle(total)
        elif self.ledger is not None or spender_in_force() is not None:
            raise InputError(  # of a class of one's own
                f"ledger: {(name := type(self).__name__)} drew noise and reserved nothing before; what it released is not counted.",
                source=f"the method fit of {name}",
                remedy="call self._pay(...) in it before the first release; and reserve by hand what this fit cost, if anybody saw it.",
            )
        self.statement_ = self.certificate_ = total
        self.delta_, self.n_samples_seen_ = budget.delta, records
        self.epsilon_ = total.epsilon(budget.delta)
        self.privacy_report_ = privacy_report(total, parts, delta=budget.delta, records=records, why=why, public=public, scope=OWN_FIT)


def randomness(random_state: Any, seed_noise: Any, records: int, *, stored_order: bool = False) -> RandomSources:
    """Draw the public order from `random_state`, and noise and secret draws from fresh entropy unless `seed_noise` is True."""
    # Permutations and samples that a certificate calls secret count as noise: who knows a seed knows them.
    if require_switch("seed_noise", seed_noise) and random_state is None:
        raise InputError(
            "seed_noise = True without a random_state: there is nothing to seed the noise with.",
            source="the parameters seed_noise and random_state",
            remedy="give random_state, or leave seed_noise out, as you must where privacy matters",
        )
    try:
        public = check_random_state(random_state)
    except ValueError as error:
        raise InputError(
            f"random_state = {random_state!r}; it needs None, an integer in 0..2**32 - 1 or a numpy.random.RandomState.",
            source="the parameter random_state",
        ) from error
    order = None
    if not stored_order or seed_noise:
        drawn = public.permutation(records).astype(np.intp, copy=False)
        order = None if stored_order else drawn
    if not seed_noise:
        return RandomSources(order, norm=None, batches=None, noise=None, mechanism=None, seeded=False)
    import torch  # takes seconds to load

    from lethe.train.core.generators import seeded_generators

    cpu = torch.device("cpu")
    seeds = [int(seed) for seed in public.randint(2**31 - 1, size=3)]
    batches, noise = seeded_generators(seeds[0], (cpu, cpu))
    early, late = (np.random.default_rng(seed) for seed in seeds[1:])
    return RandomSources(order, norm=early, batches=batches, noise=noise, mechanism=late, seeded=True)
