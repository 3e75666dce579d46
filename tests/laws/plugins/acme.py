"""One theorem, loss, schedule, layer rule and mechanism of a package that is not Lethe's; `register` adds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import Field
from torch import Tensor, nn

from lethe.calculus.domains import FloatArray
from lethe.calculus.guarantees import ZCDP, Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std
from lethe.run.losses import LOSSES
from lethe.run.losses.curvatures import Curvatures
from lethe.run.losses.linear import LinearLoss, real_targets
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.run.schedules import SCHEDULES
from lethe.run.schedules.shapes import Array, Schedule
from lethe.theorems.base import Bound, Theorem
from lethe.train.clip.parts.part import MaterialisedGradients
from lethe.train.clip.rules.registry import register_rule
from lethe.train.clip.rules.rule import Call


class Scale(nn.Module):
    """$s = w \\odot u$ for rows u."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, rows: Tensor) -> Tensor:
        return rows * self.weight


def scale_gradients(call: Call) -> Iterator[tuple[str, MaterialisedGradients]]:
    """$G_i = u_i \\odot g_i$."""
    yield "weight", MaterialisedGradients(call.given * call.gradient)


class PseudoHuber(LinearLoss):
    r"""$l = \sqrt{1 + r^2} - 1$ for $r = \langle u, x\rangle - y$: $|l'| < 1$ and $0 < l'' \le 1$."""

    kind: ClassVar[str] = "acme_pseudo_huber"
    summary: ClassVar[str] = "pseudo-Huber regression"
    name: ClassVar[str] = "pseudo-Huber"
    scalar: ClassVar[bool] = True
    one_sided: ClassVar[bool] = False
    numeric_targets: ClassVar[bool] = True

    @property
    def curvature_bound(self) -> float:
        return 1.0

    @property
    def target_classes(self) -> None:
        return None

    def for_classes(self, classes: int | None) -> Self:
        return self

    def check_targets(self, values: Any, count: int) -> FloatArray:
        return real_targets(values, count=count)

    def values(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        return np.hypot(1.0, scores[:, 0] - targets) - 1.0

    def slopes(self, scores: FloatArray, targets: FloatArray) -> FloatArray:
        residuals = scores[:, 0] - targets
        return (residuals / np.hypot(1.0, residuals))[:, None]

    def curvatures(self, scores: FloatArray, targets: FloatArray) -> Curvatures:
        return Curvatures(np.hypot(1.0, scores[:, 0] - targets)[:, None] ** -3.0)

    def decide(self, scores: FloatArray) -> np.ndarray[Any, np.dtype[Any]]:
        return scores[:, 0]


def noisy_count(marks: ArrayLike, target: Guarantee, generator: np.random.Generator | None = None) -> tuple[float, Statement]:
    """The number of True among `marks`, with Gaussian noise, and what it costs."""
    noise_std = gaussian_noise_std(1.0, target)
    count = float(np.count_nonzero(marks)) + noise_std * float(noise_generator(generator).standard_normal())
    statement = Statement(
        name="a count",
        guarantee=gaussian_guarantee(1.0, noise_std),
        neighbours="replace_one",
        findings=(holds("sensitivity", "one record moves the count by at most 1", evidence="enforced"),),
        citations=(),
        seeded=generator is not None,
    )
    return count, statement


class Cosine(Schedule):
    r"""$v_t = \frac{v_0}2(1 + \cos(\pi\min(t, p)/p))$."""

    schedule: ClassVar[str] = "acme_cosine"
    first: float = Field(ge=0)
    period: int = Field(ge=1)

    def values(self, count: int) -> Array:
        share = np.minimum(np.arange(count, dtype=np.float64), self.period) / self.period
        return 0.5 * self.first * (1.0 + np.cos(np.pi * share))

    def scaled(self, factor: float) -> Cosine:
        return self.model_copy(update={"first": self.first * factor})


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


def register() -> None:
    """Make Lethe read, train and clip what has a name in a document or a layer of its own."""
    LOSSES[PseudoHuber.kind] = PseudoHuber
    SCHEDULES[Cosine.schedule] = Cosine
    register_rule(Scale, scale_gradients)
