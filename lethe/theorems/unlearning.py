r"""Certified unlearning: records are forgotten by more noisy steps on the data without them (docs/theory.md, section 19).

`lethe.certify_unlearning` is called with the run that trained and the further steps; the shift engine bounds how far the result is from a
model that never saw the records.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lethe.calculus.domains import require_count
from lethe.calculus.guarantees import GDP
from lethe.calculus.large_delta import delta_for
from lethe.calculus.rounding import raised, round_up
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import Finding, fails, holds, require_all
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems.lipschitz import ridge_contraction
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.requirements import last_iterate, smooth
from lethe.theorems.shift import engine as shift
from lethe.theorems.shuffled.positions import worst_position
from lethe.theorems.steps import step_constants

_REQUEST = "neither which records are removed nor the further steps were chosen by a look at the trained model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlearning:
    """How close a model that went on training without some records is to one that never saw them; no statement of what was shown before.

    Args:
        guarantee: of the pair (trained with them, then without them) and (always without them), in both directions.
        delta: the delta of `epsilon`.
        removed: how many records were removed.
        findings: the hypotheses, and how each is known.
    """

    guarantee: GDP
    delta: float
    removed: int
    findings: tuple[Finding, ...]

    @property
    def epsilon(self) -> float:
        """Of the two models' laws at `delta`, rounded up; inf if nothing is proved."""
        return self.guarantee.epsilon(self.delta)

    def __str__(self) -> str:
        records = "1 record" if self.removed == 1 else f"{self.removed} records"
        head = f"({shown(self.epsilon, 4)}, {self.delta:g})-unlearning of {records}    {self.guarantee.describe()}"
        return "\n".join([head, *(f"  {item.evidence:<10} {item.name:<16} {item.words}" for item in self.findings)])


def certify_unlearning(run: Run, further: Run, delta: float, *, removed: int = 1, allow_large_delta: bool = False) -> Unlearning:
    r"""Bound how well the steps of `further`, on the data without some records, make a model forget that it was trained on them.

    The model of `run` goes on as `further` says, and only the last iterate is shown. It is compared with what the same steps make of a
    model that was trained without the records: with their gradients zero, or another record's, as `run.neighbours` says. With touches
    $s_t$ in the T steps of `run` and none in the K of `further`, the shift engine bounds one record's $\mu$, on a bounded domain from the
    diameter at any time, and m records are $m\mu$-GDP apart. What was shown before, the first model too, is not covered: that is
    `lethe.certify`'s to say, of `run`.

    Args:
        run: the training, of batches of exact size; what it releases does not matter here.
        further: the steps after it, from its last iterate, on the remaining data: K of them with noise. Its loss and regulariser hold
            there.
        delta: in (0, 1), below 1/records.
        removed: m >= 1, the records removed together.
        allow_large_delta: whether a delta >= 1/records is meant.
    Returns:
        An Unlearning: `guarantee`, `epsilon` at delta, `findings`.
    Raises:
        HypothesisError: a hypothesis fails; the error names it.
        InputError: an argument is out of its range, or a run has no noise.
    Reference: the notion is that of Chien, Wang, Chen, Li 2024, arXiv:2401.10371; the bound is proved in docs/theory.md, section 19.
    """
    count = require_count("removed", removed)
    findings = (*_examined(run, "run"), *_examined(further, "further"), holds("request", _REQUEST, evidence="declared"))
    require_all(findings, f"certify_unlearning does not apply to run {run.run_id} and further {further.run_id}")
    mu = float("inf") if run.seeded or further.seeded else _mu(run, further, count)
    number = delta_for(run.records, delta, allow_large_delta=allow_large_delta)
    return Unlearning(guarantee=GDP(mu), delta=number, removed=count, findings=tuple(dict.fromkeys(findings)))


def _examined(run: Run, name: str) -> tuple[Finding, ...]:
    """The hypotheses of the optimal shift, and those that are needed besides; what the training itself releases is none."""
    if require_run(run, source=name).noise_multiplier is None:
        raise InputError(f"{name}: noise_multiplier is null; it has no noise yet.", remedy="set it, or plan the run first.")
    findings = [item for item in OptimalShift().examine(run.replace(release="last") if name == "run" else run) if item.name != "release"]
    if name == "further":
        findings += [last_iterate(run)]
        if run.loss.curvature is None:
            findings.append(smooth(run))
    if not run.batches.exact_size:
        detail = f"it needs batches of exact size; {run.batches.design} batches of {name} vary"
        findings.append(fails("batches", detail, source=f"{name}.batches", remedy="use a design with batches of exact size."))
    if run.pass_weights is not None:
        detail = f"it is about last iterates of passes; those of {name} end at an average"
        findings.append(fails("pass averages", detail, source=f"{name}.pass_weights", remedy="train without pass_weights."))
    return tuple(findings)


def _mu(run: Run, further: Run, removed: int) -> float:
    r"""$\mu$ of the records together, which are no further apart than the domain is wide however many they are."""
    after = step_constants(further)
    assert after is not None
    steps = further.total_steps
    untouched, unbounded = np.zeros(steps), np.full(steps, np.inf)
    errors = untouched if after.errors is None else after.errors
    later = _Steps(after.lipschitz, untouched, further.noise_stds, unbounded if after.diameter is None else after.diameter, errors)
    best = np.inf
    if np.isfinite(run.diameter):  # the two trained models are anywhere in the domain: as a touch before the first step
        joined = _Steps(np.ones(1), np.array([run.diameter]), np.zeros(1), np.array([run.diameter]), np.zeros(1)).then(later, 1.0)
        best = joined.mu(1)
    if (before := step_constants(run)) is not None:
        touches, per_pass = _touches(run, before.lipschitz)
        wide = np.full(run.total_steps, np.inf) if before.diameter is None else before.diameter
        errors = np.zeros(run.total_steps) if before.errors is None else before.errors
        trained = _Steps(before.lipschitz, touches, run.noise_stds, wide, errors)
        # The proximal step of the last training step counts in the next step's constant.
        joined = trained.then(later, ridge_contraction(float(run.step_sizes[-1]), run.strong_convexity))
        best = min(best, round_up(removed * joined.mu(per_pass), 2.0**-52))
    return best


class _Steps(NamedTuple):
    """What the shift engine is asked about, an entry a step: `errors` are apart from touches and come at all steps."""

    lipschitz: Array
    touches: Array
    noise_stds: Array
    diameters: Array
    errors: Array

    def then(self, later: "_Steps", contraction: float) -> "_Steps":
        """These steps and later ones, of which the first begins after a proximal step."""
        lipschitz = later.lipschitz.copy()
        lipschitz[0] = lipschitz[0] if contraction == 1.0 else raised(lipschitz[0] * contraction)
        return _Steps(*(np.concatenate(pair) for pair in zip(self, later._replace(lipschitz=lipschitz), strict=True)))

    def mu(self, per_pass: int) -> float:
        """Of the worst place among this many of a pass; touches and errors are hidden apart (docs/theory.md, section 14)."""
        apart = worst_position(self.lipschitz, self.touches, self.noise_stds, per_pass, self.diameters)[0]
        return apart + (shift.solve(self.lipschitz, self.errors, self.noise_stds).mu if self.errors.any() else 0.0)


def _touches(run: Run, lipschitz: Array) -> tuple[Array, int]:
    """What a record moves each step by, and in how many steps of a pass it takes part in one alone; 1: as said, in all."""
    match run.batches.participation:
        case Participation.EVERY_STEP | Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            return run.sensitivities, 1
        case Participation.PUBLIC_SLOT | Participation.SECRET_SLOT:
            return run.sensitivities, run.steps_per_pass
        case Participation.FRESH_SECRET_SLOT:
            # Wherever in each pass, it counts at the pass's end by the most that a touch has grown to (Theorem 4).
            touches, grown = np.zeros(run.total_steps), 0.0
            for step, (factor, touch) in enumerate(zip(lipschitz.tolist(), run.sensitivities.tolist(), strict=True)):
                begins, ends = step % run.steps_per_pass == 0, (step + 1) % run.steps_per_pass == 0
                grown = max(0.0 if begins else factor * grown, touch)
                if ends or step == run.total_steps - 1:
                    touches[step] = raised(grown, 2.0**-52 * (run.steps_per_pass + 4))
            return touches, 1
    raise unknown_participation(run.batches.design, run.batches.participation)
