"""The interface of a theorem: which of its hypotheses hold for a run, and what it proves of that run.

`accounting.certify` and `compare` go through the theorems of `registry` with a Run; each examines the run and, if all its hypotheses hold,
returns a bound. Hypotheses that all theorems share are checked here: field values that are known, the kind of noise, arithmetic, and the
clip method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.guarantees import Guarantee, NotPrivate, WithSlack
from lethe.certificates.findings import Finding, fails, holds, require_all
from lethe.certificates.parts import Citation, StepConstant
from lethe.run.effective_loss import descends_envelope
from lethe.run.fields import SHORTENING
from lethe.run.known_fields import unknown_field
from lethe.run.participation import KNOWN_SIZES, BatchSizes, Participation
from lethe.run.precision import Precision
from lethe.run.regularisers import NuclearNorm
from lethe.run.run import Run
from lethe.theorems.truncation import counted_within, examine_cap, truncation_slack


def _unknown(run: Run, theorem: Theorem) -> Iterator[Finding]:
    """What the theorem knows nothing of: a value of a field, batches of such sizes, noise of another kind, groups of records."""
    design = run.batches.design
    if (unknown := unknown_field(run)) is not None:
        name, got, needed = unknown
        remedy = "take one that is known; nothing is known of what this one reveals."
        yield fails(name, f"it needs {name} to be {needed}; it is {got}", source=name, remedy=remedy)
    elif run.batches.sizes not in theorem.sizes:
        yield fails(
            "batches",
            f"it needs to know how many records a batch may hold; {design} batches hold any number",
            source=f"batches.design = {design}",
            remedy="use composition, which needs no batch sizes, or a design that states them.",
        )
    elif (run.noise is not None) != theorem.correlated:
        got = "independent" if run.noise is None else run.noise.kind
        yield fails(
            "noise",
            f"it needs {'correlated' if theorem.correlated else 'independent'} noise; this run's is {got}",
            source=f"noise = {'null' if run.noise is None else got}",
            remedy="use composition, or give the run a strategy." if theorem.correlated else "use correlated-noise, or drop noise.",
        )
    elif run.batches.participation is Participation.DRAW_IN_PUBLIC_GROUP and not theorem.record_groups:
        yield fails(
            "batches",
            f"it is not about steps that draw from one group of the records; batches are {design}",
            source=f"batches.design = {design}",
            remedy="use composition, sampled-gaussian or a theorem on correlated noise, which know groups.",
        )


def arithmetic(run: Run) -> Finding:
    """What rounding does to iterates that nobody sees: counted where the precision is known, else declared to be nothing."""
    if run.precision is None:
        detail = "iterates and gradients are exact: precision is not said, and rounding is not counted"
    else:
        dtype, norm = run.precision.dtype, run.precision.parameter_norm
        errors = run.rounding_errors
        assert errors is not None
        if not np.isfinite(errors).all():
            return fails(
                "arithmetic",
                f"{dtype} parameters of norm <= {norm:.6g}: what rounding does in a step has no bound",
                source="precision and regulariser",
                remedy="use regularisers whose proximal step says its roundings, and a parameter_norm that training comes near.",
            )
        detail = f"{dtype} parameters of norm <= {norm:.6g} after noise: rounding, up to {errors.max():.2g} a step, is counted"
        if singular := [part for part in run.regularisers if isinstance(part, NuclearNorm)]:
            detail += f"; that singular values are off by {singular[0].roundings:g} roundings of their norm at most is not proved"
    return holds("arithmetic", detail, evidence="declared")


def _precision(precision: Precision) -> Finding:
    """The finding of a theorem on the last iterate that is stated for exact arithmetic: float64 is declared to be that, float32 is not."""
    if precision.dtype == "float64":
        return holds("arithmetic", "it is stated for exact arithmetic; the rounding of float64 is not counted", evidence="declared")
    return fails(
        "arithmetic",
        f"it is stated for exact arithmetic; iterates are {precision.dtype}, whose rounding adds up over the steps",
        source="precision.dtype",
        remedy="use optimal-shift, which counts rounding, or keep the iterates in float64.",
    )


Clipping = Literal["one norm", "projections", "projections and envelopes", "any"]
"""The projection on one ball; groups too; these, and `lethe.run.effective_loss`; whatever bounds the norm."""


def _clipping(run: Run, allowed: Clipping) -> Iterator[Finding]:
    """The failing findings of a clip method that the theorem does not allow; empty where it is allowed.

    A projection does not bring two gradients further apart, so a step has a Lipschitz constant that follows from the loss's curvature.
    Normalising does: it gives gradients of norm $10^{-9}$ and opposite directions the distance 2C. All that is left then is the bound on
    the norm, which is enough where every touch pays for itself. Clipping groups of parameters, each to its norm, is a projection too, on a
    product of balls, but turns gradients. The gradient of a Lipschitz envelope is that of another convex function, whose own curvature
    counts, and which is known up to the error of a search: a theorem has to know of both.
    """
    if descends_envelope(run) and allowed in ("one norm", "projections"):
        yield fails(
            "clip method",
            "it is stated for the loss's own gradients, clipped by projection or not at all; these are of the loss's envelope, another "
            "function, and known up to the error of a search",
            source=f"clip_method = {run.clip_method}",
            remedy="use one of Lethe's own theorems, or clip_method: clip, in the training too.",
        )
    if run.clip_method not in SHORTENING and allowed != "any":
        why = "it can bring two gradients further apart, and a step then has no Lipschitz constant"
        why = "its noise hides what lies along one direction alone" if run.clip_method == "directional" else why
        yield fails(
            "clip method",
            f"it needs clipping by projection; {run.clip_method} is none: {why}",
            source=f"clip_method = {run.clip_method}",
            remedy="use composition, which needs the bound on the norm only, or clip_method: clip, in the training too.",
        )
    if run.clip_method == "directional_isotropic" and allowed == "one norm":
        yield fails(
            "clip method",
            "it is stated for gradients clipped to one norm; these are projected on a direction, which turns them",
            source=f"clip_method = {run.clip_method}",
            remedy="use one of Lethe's own theorems, or clip_method: clip, in the training too.",
        )
    if run.clips and run.clips_in_groups and allowed == "one norm":
        assert run.clip_groups is not None
        yield fails(
            "clip groups",
            f"it is stated for one norm over all parameters; {len(run.clip_groups)} groups are clipped by themselves, which turns "
            "gradients",
            source=f"clip_groups = {list(run.clip_groups)}",
            remedy="use one of Lethe's own theorems, or one clip_norm for all parameters, in the training too.",
        )


Covers = Literal["last", "all"]
Soundness = Literal["sound", "dominated", "refuted", "one-sided", "proof-gap", "lower-bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whether what a theorem says may be relied on.

    `soundness` is "sound", "dominated": sound, and never better than another theorem here; "refuted": false; "one-sided": covers one
    direction of the two; "proof-gap": its proof does not cover this run; or "lower-bound": not an upper bound at all. `why` is the reason,
    in a clause; empty for "sound".
    """

    soundness: Soundness
    why: str = ""

    @property
    def usable(self) -> bool:
        """Whether a certificate may rest on it."""
        return self.soundness in ("sound", "dominated")


SOUND = Standing(soundness="sound")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The privacy bound that a theorem proves for a run.

    The guarantee holds for what the run releases, under the run's neighbouring relation, if the theorem's standing is usable; `lipschitz`
    is the step constant used, if any.
    """

    guarantee: Guarantee
    lipschitz: StepConstant | None = None


class Theorem(ABC):
    """A theorem: its hypotheses, and the privacy bound that follows from them.

    Class attributes:
        name: as shown in certificates.
        statement: what it proves, in one sentence.
        formula: the bound, in LaTeX.
        needs: its hypotheses, in a line.
        covers: what may be released: "last" (the last iterate only) or "all" (every iterate, hence the last too).
        averages: whether it holds for runs whose passes end at an average of their iterates (Run.pass_weights).
        adaptive: whether it holds for noise that was chosen along the way (Run.noise_budget).
        record_groups: whether it knows records that are drawn at the steps of a public group.
        correlated: whether it is about noise that is correlated over steps (Run.noise); else about independent noise alone.
        counts_rounding: whether it counts what rounding does to iterates that nobody sees (Run.precision); a theorem on released iterates
            need not, since their noise is added before they are rounded.
        sizes: which batch sizes it holds for: exact, binomial, or unknown ones as well.
        given_the_others: whether its bound holds given the draws of all records but the one in question, so that a cap on batches
            (truncate_at) costs no more than `truncation_slack`.
        counts_cap: whether its guarantee counts that cap itself where it is `counted_within`.
        clipping: which ways of clipping it holds for: one norm for all parameters, any projection, or whatever bounds the norm.
        citations: where it is published or proved.
        standing: whether it may be relied on; `standing_on` where that depends on the run.
    """

    name: ClassVar[str]
    statement: ClassVar[str]
    formula: ClassVar[str]
    needs: ClassVar[str]
    covers: ClassVar[Covers] = "last"
    averages: ClassVar[bool] = False
    adaptive: ClassVar[bool] = False
    record_groups: ClassVar[bool] = False
    correlated: ClassVar[bool] = False
    counts_rounding: ClassVar[bool] = False
    sizes: ClassVar[frozenset[BatchSizes]] = KNOWN_SIZES
    given_the_others: ClassVar[bool] = False
    counts_cap: ClassVar[bool] = False
    clipping: ClassVar[Clipping] = "one norm"
    citations: ClassVar[tuple[Citation, ...]]
    standing: ClassVar[Standing] = SOUND

    def examine(self, run: Run) -> tuple[Finding, ...]:
        """All hypotheses for this run, holding or failing; a run with a value or noise that is not known gets a single failing one."""
        unknown = tuple(_unknown(run, self))
        if unknown:
            return unknown
        cap = examine_cap(run, given_the_others=self.given_the_others, counts_cap=self.counts_cap)
        return (*self._unforeseen(run), *_clipping(run, self.clipping), *cap, *self._examine(run))

    def _unforeseen(self, run: Run) -> Iterator[Finding]:
        if run.pass_weights is not None and not self.averages:
            yield fails(
                "pass averages",
                "it is about the last iterate of a pass; this run's passes end at an average",
                source="pass_weights",
                remedy="use optimal-shift, which takes the average for a part of the pass, or drop pass_weights.",
            )
        if run.noise_budget is not None and not self.adaptive:
            yield fails(
                "noise known in advance",
                "it needs noise that was fixed before training; this run's was chosen along the way",
                source="noise_budget",
                remedy="use budget-filter, or fix the noise in advance and drop noise_budget.",
            )
        if run.precision is not None and self.covers == "last" and not self.counts_rounding:
            yield _precision(run.precision)

    @abstractmethod
    def _examine(self, run: Run) -> tuple[Finding, ...]:
        """The theorem's own hypotheses."""

    @abstractmethod
    def _bound(self, run: Run) -> Bound:
        """The bound, for a run whose hypotheses all hold."""

    def standing_on(self, run: Run) -> Standing:
        """Whether its bound of `run` may be relied on; for a run whose hypotheses all hold."""
        del run
        return self.standing

    def bound(self, run: Run, findings: tuple[Finding, ...] | None = None) -> Bound:
        """The bound on `run`; `findings` are the result of `examine`, if that is at hand.

        Where batches are cut, the guarantee carries what that costs in delta, so that none without a delta can be read off it, or counts
        it within the divergence. Of a seeded run there is none: every theorem is about noise that nobody can make again.

        Raises:
            HypothesisError: a hypothesis fails; the error names it.
        """
        require_all(self.examine(run) if findings is None else findings, f"{self.name} does not apply to run {run.run_id}")
        if run.seeded:
            return Bound(guarantee=NotPrivate())
        bound = self._bound(run)
        slack = 0.0 if self.counts_cap and counted_within(run) is not None else truncation_slack(run)
        return replace(bound, guarantee=WithSlack(bound.guarantee, slack)) if slack > 0.0 else bound
