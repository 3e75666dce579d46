"""RunMechanism: training by gradient descent on batches; its last iterate is certified, or all of them with correlated noise.

`choose` plans these beside the other mechanisms; the chosen one calibrates its noise by `lethe.accounting`, trains by descents.py and
certifies what it recorded. `PrivateLinearModel` and `lethe train` take the training record and the secret batch order from here.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from lethe.accounting.certify import certify
from lethe.accounting.plan import plan
from lethe.calculus.guarantees import ApproxDP, Guarantee
from lethe.certificates.certificate import Certificate
from lethe.certificates.derivation import derivation
from lethe.certificates.findings import ESTIMATORS, Finding, holds
from lethe.certificates.findings import enforced as enforced_by
from lethe.certificates.records import HypothesisClaim, Released, ReleaseRecord, TrainingRecord
from lethe.certificates.statement import Statement
from lethe.certificates.weights import tensors_digest
from lethe.errors import LetheError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.mechanism import AnyRecords, MechanismPlan, Outcome, Penalties, RandomSources
from lethe.estimators.choice.run_shapes import RunShape, best_shape, certifies_all, waning_variances
from lethe.estimators.inputs.facts import BatchDesign, NoiseShape, PublicFacts
from lethe.mechanisms.base import Array
from lethe.noise_allocation.correlate import correlate
from lethe.run.batches import Batches, Cyclic, CyclicPoisson, Full, Poisson
from lethe.run.regularisers import L1, L1L2, L2, Regulariser
from lethe.run.run import Run

_SECRET = ("poisson", "cyclic_poisson")  # whose batches take records from anywhere, by a draw that nobody may learn
# What this package makes true of its own runs; the rest follows from a Run itself.
_ROWS = "every row is projected to that norm, and the loss is computed by fit"
ENFORCED = {
    "release": "only the last iterate leaves fit",
    "secrecy": "drawn from fresh entropy inside fit, neither kept nor shown",
    "gradient bound": _ROWS,
    "curvature": _ROWS,
}


@dataclass(frozen=True, slots=True)
class RunMechanism:
    """One batch design with one shape of noise."""

    name: str  # of the mechanism
    design: BatchDesign  # of the batches
    schedule: NoiseShape  # of the noise

    def refusal(self, facts: PublicFacts) -> str | None:
        """Another design or another shape of noise was asked for, or none, of a design that is taken where it is asked for by name."""
        if self.design == "cyclic_poisson" and facts.batches == "auto":
            return "cyclic_poisson batches are drawn in secret from groups; ask for them by name"
        if facts.batches not in ("auto", self.design):
            return f"batches = {facts.batches} was asked for"
        if facts.schedule not in ("auto", self.schedule):
            return f"schedule = {facts.schedule} was asked for"
        if facts.release == "all" and self.schedule == "pass_ends":
            return "release = all was asked for, and its noise hides the last iterate alone"
        if facts.in_blocks and facts.unit == "user" and self.design != "full":
            return "of a table in blocks only full batches count users: rows of one user may lie in several blocks"
        if facts.in_blocks and self.design in _SECRET:
            if facts.batches == "auto":
                return f"each step of {self.design} batches reads the whole table in blocks; ask for it by name"
            from lethe.train.linear.blocks import MOST_DRAWN

            if facts.records > MOST_DRAWN:
                return f"{self.design} batches draw a number for each of {facts.records} records in one place; at most {MOST_DRAWN}"
        return None

    def plan(self, facts: PublicFacts, budget: PrivacyBudget) -> MechanismPlan:
        """Passes, batches and steps by the rule; the noise is found when it is trained."""
        shape = best_shape(facts, self.design, self.schedule, budget.mu)
        bound = shape.facts.envelope
        envelope = "" if bound is None else f"envelope of bound {bound:.3g} of the "
        summary = f"{envelope}{shape.facts.loss.name} loss, {shape.passes} passes, batches of {shape.size}, step size {shape.step_size:.3g}"
        if shape.groups > 1:
            summary += f", {shape.groups} groups"
        if shape.averaged > 1:
            summary += f", the mean of the last {shape.averaged} iterates"

        @cache
        def planned() -> Run:
            return _with_noise(self._run(shape), budget, self.schedule, shape.facts)

        def train(records: AnyRecords, draws: RandomSources, penalties: Penalties) -> Outcome:
            expected = Penalties(facts.ridge, facts.l1)
            if not penalties.ridge >= expected.ridge:
                raise LetheError(
                    f"ridge: the noise counts on {expected.ridge:.3g}, and only {penalties.ridge:.3g} is left after what was released.",
                    source="the estimator's plan; its training released nothing",
                )
            from lethe.estimators.choice.descents import carry_out  # torch takes seconds to load: where a run is trained

            run = planned() if penalties == expected else planned().replace(regulariser=_regulariser(penalties))
            weights, recorded = carry_out(run, records.with_loss(shape.facts.loss), draws, averaged=shape.averaged)
            certificate = certified(recorded, budget.delta)
            charged = recorded.replace(seeded=False) if penalties == expected else planned()
            statement = Statement(
                name=f"{self.name}: {summary}",
                # A larger ridge only contracts; what that gains depends on a release, so it is not claimed.
                guarantee=certified(charged, budget.delta).guarantee,
                neighbours=facts.neighbours,
                unit=facts.unit,
                findings=(
                    *enforced_by(certificate.findings, enforced(recorded), by=ESTIMATORS, of_run=True),
                    *_declared(recorded, in_blocks=facts.in_blocks),
                ),
                citations=certificate.citations,
                seeded=recorded.seeded,
                derivation=derivation("run", run=charged.to_document(), delta=budget.delta),
                records=facts.records,
            )
            return Outcome(
                weights=weights, statement=statement, facts=shape.facts, run=recorded, passes=shape.passes, averaged=shape.averaged
            )

        return MechanismPlan(
            name=self.name,
            risk=shape.risk,
            summary=summary,
            guarantee=lambda: certified(planned(), budget.delta).guarantee,
            train=train,
            passes=shape.passes,
            run=planned,
        )

    def _run(self, shape: RunShape) -> Run:
        facts, size = shape.facts, shape.size
        designs: dict[str, Batches] = {"full": Full(), "cyclic": Cyclic(size=size), "poisson": Poisson(size=size)}
        return Run(
            records=facts.records,
            batches=designs.get(self.design) or CyclicPoisson(size=size, groups=shape.groups),
            passes=shape.passes,
            step_size=shape.step_size,
            noise_at="pass_ends" if self.schedule == "pass_ends" else "every_step",
            noise_multiplier=np.sqrt(waning_variances(shape.passes)).tolist() if self.schedule == "pass_ends" else None,
            loss=facts.loss.as_recorded(),
            clip_norm=facts.envelope,
            clip_method="clip" if facts.envelope is None else "envelope",
            regulariser=_regulariser(Penalties(facts.ridge, facts.l1)),
            release="all" if certifies_all(facts, self.schedule) else "last",
            neighbours=facts.neighbours,
            unit=facts.unit,
        )


RUNS = (
    RunMechanism("cyclic", "cyclic", "uniform"),
    RunMechanism("pass_ends", "cyclic", "pass_ends"),
    RunMechanism("full_batch", "full", "uniform"),
    RunMechanism("poisson", "poisson", "uniform"),
    RunMechanism("correlated", "cyclic", "correlated"),
    RunMechanism("cyclic_poisson_correlated", "cyclic_poisson", "correlated"),
)


def _with_noise(run: Run, budget: PrivacyBudget, schedule: NoiseShape, facts: PublicFacts) -> Run:
    """The run with the least noise for which the accountant proves the budget."""
    from lethe.estimators.choice.descents import zero_start_precision

    runs: list[Run] = []
    run = correlate(run) if schedule == "correlated" else run

    def guarantee_at(target: ApproxDP) -> Guarantee:  # at the delta of the budget, which the estimator has looked at
        chosen = plan(run, target=target, allow_large_delta=True)
        if chosen.release == "last" and chosen.noise is None:
            chosen = chosen.replace(precision=zero_start_precision(chosen, facts.loss, facts.rows))
        runs.append(chosen)
        return certified(chosen, budget.delta).guarantee

    budget.settle(guarantee_at)
    return runs[-1]


@lru_cache(maxsize=16)
def certified(run: Run, delta: float) -> Certificate:
    """The certificate of a run, of which nobody vouches for anything yet, at a delta that the estimator has looked at."""
    return certify(run, delta, allow_large_delta=True)


def enforced(run: Run) -> dict[str, str]:
    """The hypotheses that this package makes true of a run that it carried out, and how."""
    from lethe.train.core.training_records import KEPT_WITHIN

    all_released = run.release == "all"  # all iterates are certified, so nothing is kept from anybody
    left_out = {"secrecy": run.seeded, "release": all_released, "arithmetic": all_released}
    return {name: how for name, how in {**ENFORCED, "arithmetic": KEPT_WITHIN}.items() if not left_out.get(name, False)}


def _declared(run: Run, *, in_blocks: bool) -> tuple[Finding, ...]:
    """What nobody can check: whose the records are, and what workers do with secret draws that are sent to them."""
    from lethe.train.core.training_records import USERS, WORKERS

    users = tuple(holds(*claim, evidence="declared") for claim in USERS) if run.unit == "user" else ()
    workers = (holds(*WORKERS, evidence="declared"),) if in_blocks and run.batches.secret else ()
    return (*users, *workers)


def training_record(
    run: Run, coefficients: Array, intercepts: Array | float, *, in_blocks: bool = False, averaged: int = 1
) -> TrainingRecord:
    """The record of a fit that released the result of its run alone, or the mean of the last iterates; the numbers as `coef_` has them."""
    of_several = f", the mean of the last {averaged} of {run.total_steps} iterates" if averaged > 1 else ""
    released = _released(f"coef_ and intercept_{of_several}", coefficients, intercepts)
    claims = tuple(HypothesisClaim(name, how) for name, how in enforced(run).items())
    declared = tuple(HypothesisClaim(finding.name, finding.detail) for finding in _declared(run, in_blocks=in_blocks))
    return TrainingRecord(run=run, by=ESTIMATORS, enforced=claims, declared=declared, released=(released,))


def release_record(stated: Statement, coefficients: Array, intercepts: Array | float) -> ReleaseRecord:
    """The record of a fit that released other numbers too, or by another mechanism than a run; the numbers as `coef_` has them."""
    return ReleaseRecord.of(stated, by=ESTIMATORS, released=(_released("coef_ and intercept_", coefficients, intercepts),))


def _released(name: str, coefficients: Array, intercepts: Array | float) -> Released:
    """The name and digest of released weights."""
    return Released(name, tensors_digest({"coef_": coefficients, "intercept_": np.asarray(intercepts)}))


def secret_design(mechanism: str, batches: BatchDesign) -> BatchDesign | None:
    """The design of the batches that was asked for, by itself or by the name of a run, if it draws them secretly; else None."""
    named: list[BatchDesign] = [mechanism_run.design for mechanism_run in RUNS if mechanism_run.name == mechanism]
    design = batches if batches != "auto" or not named else named[0]
    return design if design in _SECRET else None


def _regulariser(penalties: Penalties) -> Regulariser | None:
    """The ridge and l1 penalty as `lethe.run` has them; None: neither."""
    ridge, l1 = penalties
    if l1 > 0.0:
        return L1L2(l1_strength=l1, ridge_strength=ridge) if ridge > 0.0 else L1(strength=l1)
    return L2(strength=ridge) if ridge > 0.0 else None
