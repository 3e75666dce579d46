"""A theorem: zCDP of full batches, every iterate released."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.guarantees import ZCDP
from lethe.calculus.rounding import round_up
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.theorems.base import Bound, Theorem


class EveryStep(Theorem):
    r"""$\rho = \frac12\sum_t (s_t/\tau_t)^2$ for records that every step uses."""

    name: ClassVar[str] = "acme-every-step"
    statement: ClassVar[str] = "zCDP of all steps adds up."
    formula: ClassVar[str] = r"\rho = \frac12\sum_t (s_t/\tau_t)^2"
    needs: ClassVar[str] = "full batches"
    covers: ClassVar[Literal["last", "all"]] = "all"
    citations: ClassVar[tuple[Citation, ...]] = (Citation(key="bun-steinke-2016", text="Bun, Steinke 2016, arXiv:1605.02658, Lemma 1.7"),)

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        if run.batches.participation is Participation.EVERY_STEP:
            return (holds("batches", "every step uses every record"),)
        return (fails("batches", "it is about full batches", source="batches", remedy="use composition."),)

    def _bound(self, run: Run) -> Bound:
        with np.errstate(divide="ignore"):
            return Bound(guarantee=ZCDP(round_up(0.5 * float(np.sum(1.0 / run.relative_noise**2)), 1e-12)))
