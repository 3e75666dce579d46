"""What a theorem is: it looks at a run, says which of its hypotheses hold, and bounds what the run reveals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from lethe.calculus.guarantees import Guarantee
from lethe.certificate import Citation, StepConstant
from lethe.errors import HypothesisError
from lethe.hypotheses import Finding, first_failure
from lethe.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a theorem proves of a run.

    Args:
        guarantee: holds for what the run releases, under the run's neighbouring relation.
        lipschitz: the step constant used, if any.
    """

    guarantee: Guarantee
    lipschitz: StepConstant | None = None


class Theorem(ABC):
    """One way to certify a run.

    Class attributes:
        name: as shown in certificates.
        statement: what it proves, in one sentence.
        citations: where it is published or proved.
    """

    name: ClassVar[str]
    statement: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]

    @abstractmethod
    def examine(self, run: Run) -> tuple[Finding, ...]:
        """Every hypothesis, holding or failing, for this run."""

    @abstractmethod
    def _bound(self, run: Run) -> Bound:
        """The bound, for a run whose hypotheses all hold."""

    def bound(self, run: Run, findings: tuple[Finding, ...] | None = None) -> Bound:
        """What the theorem proves of `run`; `findings` are what `examine` said of it, if it was asked already.

        Raises:
            HypothesisError: a hypothesis fails; the error names it.
        """
        failure = first_failure(self.examine(run) if findings is None else findings)
        if failure is not None:
            raise HypothesisError(
                f"{self.name} does not apply to run {run.run_id}: {failure.detail}", source=failure.source, remedy=failure.remedy
            )
        return self._bound(run)
