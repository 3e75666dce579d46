"""The interface of a theorem: which of its hypotheses hold for a run, and what it proves of that run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from lethe.calculus.guarantees import Guarantee, NotPrivate, WithSlack
from lethe.certificates.findings import Finding, fails, first_failure
from lethe.certificates.parts import Citation, StepConstant
from lethe.errors import HypothesisError
from lethe.run.participation import KNOWN_SIZES, BatchSizes
from lethe.run.run import Run
from lethe.theorems.clip_methods import Clipping, examine_clipping
from lethe.theorems.known_words import examine_groups, examine_noise, examine_precision, examine_words
from lethe.theorems.truncation import examine_cap, truncation_slack

Soundness = Literal["sound", "dominated", "refuted", "one-sided", "proof-gap", "lower-bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whether what a theorem says may be relied on.

    Args:
        soundness: "sound"; "dominated": sound, and never better than another theorem here; "refuted": false; "one-sided": covers one
            direction of the two; "proof-gap": its proof does not cover this run; "lower-bound": not an upper bound at all.
        why: the reason, in a clause; empty for "sound".
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

    Args:
        guarantee: holds for what the run releases, under the run's neighbouring relation, if the theorem's standing is usable.
        lipschitz: the step constant used, if any.
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
        clipping: which ways of clipping it holds for: one norm for all parameters, any projection, or whatever bounds the norm.
        citations: where it is published or proved.
        standing: whether it may be relied on; `standing_on` where that depends on the run.
    """

    name: ClassVar[str]
    statement: ClassVar[str]
    formula: ClassVar[str]
    needs: ClassVar[str]
    covers: ClassVar[Literal["last", "all"]]
    averages: ClassVar[bool] = False
    adaptive: ClassVar[bool] = False
    record_groups: ClassVar[bool] = False
    correlated: ClassVar[bool] = False
    counts_rounding: ClassVar[bool] = False
    sizes: ClassVar[frozenset[BatchSizes]] = KNOWN_SIZES
    given_the_others: ClassVar[bool] = False
    clipping: ClassVar[Clipping] = "one norm"
    citations: ClassVar[tuple[Citation, ...]]
    standing: ClassVar[Standing] = SOUND

    def examine(self, run: Run) -> tuple[Finding, ...]:
        """All hypotheses for this run, holding or failing; a run with a value or noise that is not known gets a single failing one."""
        unknown = examine_words(run, self.sizes) or examine_noise(run, correlated=self.correlated)
        unknown = unknown or (() if self.record_groups else examine_groups(run))
        if unknown:
            return unknown
        unforeseen: list[Finding] = []
        if run.pass_weights is not None and not self.averages:
            unforeseen.append(
                fails(
                    "pass averages",
                    "it is about the last iterate of a pass; this run's passes end at an average",
                    source="pass_weights",
                    remedy="use optimal-shift, which takes the average for a part of the pass, or drop pass_weights.",
                )
            )
        if run.noise_budget is not None and not self.adaptive:
            unforeseen.append(
                fails(
                    "noise known in advance",
                    "it needs noise that was fixed before training; this run's was chosen along the way",
                    source="noise_budget",
                    remedy="use budget-filter, or fix the noise in advance and drop noise_budget.",
                )
            )
        if run.precision is not None and self.covers == "last" and not self.counts_rounding:
            unforeseen.append(examine_precision(run.precision))
        cap = examine_cap(run, given_the_others=self.given_the_others)
        return (*unforeseen, *examine_clipping(run, self.clipping), *cap, *self._examine(run))

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

        Where batches are cut, the guarantee carries what that costs in delta, so that none without a delta can be read off it. Of a
        seeded run there is none: every theorem is about noise that nobody can make again.

        Raises:
            HypothesisError: a hypothesis fails; the error names it.
        """
        failure = first_failure(self.examine(run) if findings is None else findings)
        if failure is not None:
            raise HypothesisError(
                f"{self.name} does not apply to run {run.run_id}: {failure.detail}", source=failure.source, remedy=failure.remedy
            )
        if run.seeded:
            return Bound(guarantee=NotPrivate())
        bound, slack = self._bound(run), truncation_slack(run)
        return replace(bound, guarantee=WithSlack(bound.guarantee, slack)) if slack > 0.0 else bound
