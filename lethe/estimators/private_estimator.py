"""PrivateEstimator: what every estimator shares. All checks are in fit; nothing of the data is kept but what was released."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import Tags

from lethe.calculus.domains import require_switch
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.large_delta import delta_for, usual_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.sealing.release_record import ReleaseRecord
from lethe.certificates.statement import Statement
from lethe.certificates.training_record import TrainingRecord
from lethe.documents.shortened import html_table
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.runs import certified
from lethe.estimators.options import EstimatorOptions, options_of
from lethe.estimators.parameters import Parameterised
from lethe.estimators.paying import Payment, paid, planned_statement, refuse_unpaid, sent_along
from lethe.estimators.randomness import Randomness, randomness
from lethe.estimators.report import own_fit, privacy_report
from lethe.estimators.surrounding import note_surrounding
from lethe.estimators.unseen_costs import steps_that_learned, warn_of_repeated_fits, warn_of_steps
from lethe.mechanisms.base import joint, require_swap
from lethe.run.neighbours import NOUNS, Unit
from lethe.run.run import Neighbours


class PrivateEstimator(Parameterised, BaseEstimator):
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
    statement_: Statement = field(init=False)
    _proof: Statement | Certificate | TrainingRecord | ReleaseRecord = field(init=False)
    _payment: Payment | None = field(init=False)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # scikit-learn's name
        text = super().__repr__(N_CHAR_MAX)
        left_out = get_config()["print_changed_only"] and repr(self.epsilon) == repr(type(self).epsilon)  # scikit-learn hides defaults
        if not left_out and f"epsilon={self.epsilon!r}" in text:
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
        return diagram if "privacy_report_" not in vars(self) else f"{diagram}{self._privacy_table()}"

    def _privacy_table(self) -> str:
        stated = self.statement_
        private = self.epsilon_ < math.inf
        title = f"({shown(self.epsilon_)}, {self.delta_:g})-DP" if private else "NOT PRIVATE: no epsilon is proved"
        rows = [("for", f"neighbours {stated.neighbours}, {self.n_samples_seen_} {NOUNS[stated.unit][1]}"), ("released", stated.name)]
        rows += [(one.evidence if one.status == "holds" else "FAILS", f"{one.name}: {one.words}") for one in stated.findings]
        return html_table(f"privacy: {title}", (), rows)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: of the ledger its address, so that another process pays with it, and one without a ledger can predict."""
        found: Any = super().__getstate__()
        state: dict[str, Any] = {**found}
        state.pop("_payment", None)
        if "ledger" in state:
            state["ledger"] = sent_along(state["ledger"])
        return state

    def _pay(self, planned: Callable[[], Guarantee], budget: PrivacyBudget, records: int, *, unit: Unit = "record") -> None:
        """Reserve what this fit will cost, where something pays; to be called when nothing of a record was released.

        Args:
            planned: the guarantee of all that it will release together, from public facts alone; asked for only where something pays.
            budget: the whole of it.
            records: n.
            unit: of privacy.
        Raises:
            BudgetExceededError, InputError, LedgerError: it cannot be paid; nothing was released.
        """

        def stated() -> Statement:
            named = f"a fit of {type(self).__name__}"
            return planned_statement(named, planned(), neighbours=self.neighbours, unit=unit, records=records, delta=budget.delta)

        self._payment = paid(self.ledger, stated, seeded=bool(self.seed_noise))

    def _budget(self, records: int) -> PrivacyBudget:
        """The whole of it, for n records; the parameters that belong to it are checked."""
        require_swap(self.neighbours)
        allowed = require_switch("allow_large_delta", options_of(self).allow_large_delta)
        delta = usual_delta(records) if self.delta is None else delta_for(records, self.delta, allow_large_delta=allowed)
        return PrivacyBudget(epsilon=self.epsilon, delta=delta)

    def _randomness(self, records: int, *, stored_order: bool = False) -> Randomness:
        return randomness(self.random_state, self.seed_noise, records, stored_order=stored_order)

    def _switch(self, name: str) -> bool:
        """The parameter of that name.

        Raises:
            InputError: it is neither True nor False.
        """
        return require_switch(name, getattr(self, name))

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
        """Set what says how private the result is.

        Args:
            parts: what was released, at least one.
            budget: the target.
            records: n.
            why: lines on the choice of the mechanism.
            public: lines on what was taken as public.
            total: of all parts together; None: each may be about every record, so that they compose.
        """
        if total is None:
            total = parts[0] if len(parts) == 1 else joint(parts)
        note_surrounding(self, PrivateEstimator)
        # A random number tells this fit from others with the same parameters, and says nothing of the data.
        total = replace(total, records=records, target_delta=budget.delta, release_id=secrets.token_hex(16))
        if self.seed_noise:
            total = replace(total, seeded=True)
        payment = vars(self).pop("_payment", None)
        if payment is None:
            refuse_unpaid(self.ledger, type(self).__name__)
        else:
            payment.settle(total)
        self.statement_ = self.certificate_ = total
        self.delta_, self.n_samples_seen_ = budget.delta, records
        self.epsilon_ = total.epsilon(budget.delta)
        learned = steps_that_learned()
        self.privacy_report_ = privacy_report(
            total, parts, delta=budget.delta, records=records, why=why, public=public, scope=own_fit(learned)
        )
        warn_of_steps(learned, type(self).__name__)
        if payment is None:
            warn_of_repeated_fits(self, PrivateEstimator, self.epsilon_)
