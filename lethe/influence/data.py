"""The data that the estimators of influence accept (synthetic, or public with a reason), and the `Estimate` that they return.

`quadratic.py`, `adjoint.py` and `retraining.py` call `require_public` first. The influence of a step is by how much its noise raises the
final loss. Noise that is placed by looking at private data is a release of those data, and no certificate covers it. So there is no
estimator for private data, and a plain array is refused: an array does not say where it comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy import stats

from lethe.documents.specification import Specification
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.losses import LeastSquares, Tweedie
from lethe.run.losses.linear import require_linear_loss
from lethe.run.run import Run
from lethe.run.schedules.influence import Basis, Influence
from lethe.run.schedules.shapes import Array
from lethe.train.linear.models import numbers


class FittedRecords(NamedTuple):
    """Auxiliary data fitted to a run: n features and targets, and how many classes, as `Linear` takes it."""

    features: Array
    targets: npt.NDArray[Any]
    classes: int | None


class SyntheticData(Specification):
    r"""Data made by a generator that sees nothing but these fields and the run: n records, their feature norm R and the kind of loss.

    $$u_i \sim N(0, \mathrm{diag}(v)),\quad v_j \propto j^{-2\,\mathrm{decay}},\ \sum_j v_j = R^2,\quad\text{then}\quad
    u_i \leftarrow u_i\min(1, R/\|u_i\|),\qquad s_i = W^\top u_i / R,\ W_{jc} \sim N(0, 1)$$

    The linear teacher $W$ gives the targets: a class drawn from softmax(signal $s_i$) (losses of many classes), 1 with probability
    sigmoid(signal $s_i$) (losses of two), $\frac{B}{6}(s_i + \xi_i/\mathrm{signal})$ with $\xi_i \sim N(0,1)$ and $B$ the
    residual bound (least squares), or $e^{s_i}$ times a gamma variable of mean 1 and variance 1/signal (counts and costs).

    Args:
        columns: d, features of a record.
        classes: of losses of many classes; None for the others.
        seed: of the generator.
        decay: >= 0, how fast the standard deviation falls from one feature to the next, which the influence depends on most: 0 for features
            that were decorrelated, 1/2 to 1 for raw images. A guess, not a look at the private data.
        signal: > 0, how far the teacher's scores stand out of the labels' randomness.
    """

    basis: ClassVar[Literal["synthetic"]] = "synthetic"
    columns: int = Field(ge=1)
    classes: int | None = Field(default=None, ge=2)
    seed: int = Field(ge=0)
    decay: float = Field(default=0.0, ge=0)
    signal: float = Field(default=3.0, gt=0)

    @property
    def origin(self) -> str:
        """Where the data come from, in words."""
        return f"Gaussian features ({self.columns} columns, decay {self.decay:g}), random linear teacher, seed {self.seed}"

    def records(self, run: Run) -> FittedRecords:
        """As many records as the run has, for its loss; the same fields and run give the same records."""
        loss = require_linear_loss(run.loss).for_classes(self.classes)
        random = np.random.default_rng(self.seed)
        deviations = np.arange(1, self.columns + 1, dtype=np.float64) ** -self.decay
        deviations *= loss.feature_norm / np.linalg.norm(deviations)
        features = random.normal(size=(run.records, self.columns)) * deviations
        norms = np.linalg.norm(features, axis=1, keepdims=True)
        features *= np.minimum(1.0, loss.feature_norm / np.maximum(norms, np.finfo(np.float64).tiny))
        scores = features @ random.normal(size=(self.columns, loss.outputs)) / loss.feature_norm
        if isinstance(loss, LeastSquares):
            targets = loss.residual_bound / 6 * (scores[:, 0] + random.normal(size=len(scores)) / self.signal)
        elif isinstance(loss, Tweedie):
            targets = np.exp(scores[:, 0]) * random.gamma(self.signal, 1.0 / self.signal, len(scores))
        else:
            # sigmoid(s) is the second of softmax(0, s); the largest of the scores with Gumbel noise is a draw from their softmax.
            scores = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores
            targets = np.argmax(self.signal * scores + random.gumbel(size=scores.shape), axis=1)
        return FittedRecords(features=features, targets=targets, classes=loss.target_classes)


@dataclass(frozen=True, slots=True, eq=False)
class PublicData:
    """Data that anybody may see, with the reason why.

    Args:
        features: shape (m, d), finite.
        targets: shape (m,): class numbers from 0, or finite numbers for least squares.
        statement: why these data are public, in words; it goes into whatever is estimated from them. Records of the people whom the
            certificate protects are not public, a held-out part of them included.
        classes: the public number of classes, for softmax regression.
    """

    basis: ClassVar[Literal["public"]] = "public"
    features: Array
    targets: Array
    statement: str = field(kw_only=True)
    classes: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require_statement(self.statement)
        features, targets = numbers("features", self.features), numbers("targets", self.targets)
        if features.ndim != 2 or 0 in features.shape or targets.shape != (len(features),):
            raise InputError(
                f"features, targets: got shapes {features.shape} and {targets.shape}; they need (m, d) and (m,), with m and d at least 1."
            )
        for name, array in (("features", features), ("targets", targets)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def origin(self) -> str:
        """Where the data come from, in words."""
        return f"public data ({len(self.features)} records: {self.statement.strip()})"

    def records(self, run: Run) -> FittedRecords:
        """Exactly `run.records` of them, in random order: each floor(n / m) times, and a uniform rest without replacement.

        Repeated records make an estimate for a larger data set than there is; they do not make it a better one.
        """
        random = np.random.default_rng(0)
        copies, rest = divmod(run.records, len(self.features))
        every = np.arange(len(self.features))
        chosen = random.permutation(np.concatenate([np.tile(every, copies), random.permutation(len(every))[:rest]]))
        return FittedRecords(features=self.features[chosen], targets=self.targets[chosen], classes=self.classes)


AuxiliaryData = SyntheticData | PublicData


def require_statement(statement: object) -> None:
    """Raise InputError unless `statement` is text that says something."""
    if not isinstance(statement, str) or not statement.strip():
        raise InputError(
            f"statement: got {statement!r}; it needs the reason why this is public, in words.",
            remedy="write it down, or use SyntheticData: what cannot be said to be public must not place noise.",
        )


def require_public(run: object, data: object, *kinds: type) -> None:
    """Refuse what is no run, and data that are not of these kinds, arrays above all."""
    require_run(run, source="the argument run")
    if not isinstance(data, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise InputError(
            f"data: got {type(data).__name__}; it needs one of {names}: no certificate covers noise placed by private data.",
            source="the argument data",
            remedy='estimate on SyntheticData(...), or on PublicData(features, targets, statement="why they are public").',
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    r"""The influence of noise, measured: $q_t = \partial\,\mathbb{E} f(x_T) / \partial\tau_t^2$ at some of the steps $t = 1..T$."""

    steps: int
    probes: npt.NDArray[np.intp]  # steps that were measured, counted from 1, increasing
    weights: Array  # $q_t$ there, in loss per unit of noise variance (per coordinate, parameter units)
    errors: Array  # standard errors, 0 where the value is exact
    basis: Basis
    detail: str  # from what and how

    @classmethod
    def of_samples(cls, samples: list[Array], *, steps: int, probes: npt.NDArray[np.intp], basis: Basis, detail: str) -> Estimate:
        """The mean of repeats, of which each gives a weight a probe, with its standard errors."""
        errors = np.std(samples, axis=0, ddof=1) / math.sqrt(len(samples))
        return cls(steps=steps, probes=probes, weights=np.mean(samples, axis=0), errors=errors, basis=basis, detail=detail)

    @property
    def influence(self) -> Influence:
        r"""A weight for every step: as measured, and between two measured steps by a straight line in $\log q_t$."""
        if not (self.probes[0] == 1 and self.probes[-1] == self.steps):
            raise InputError(
                f"probes: got steps {self.probes[0]} to {self.probes[-1]} of {self.steps}; nothing is known outside of them.",
                remedy=f"measure steps 1 and {self.steps} too, or use fit_exponential.",
            )
        if not (self.weights > 0).all():
            worst = int(np.argmin(self.weights))
            raise InputError(
                f"weights: step {self.probes[worst]} has {self.weights[worst]:.3g}, standard error {self.errors[worst]:.2g}; "
                "an influence is above 0 everywhere.",
                remedy="take more repeats, or fit_exponential, which leaves such steps out and says so.",
            )
        logs = np.interp(np.arange(1, self.steps + 1), self.probes, np.log(self.weights))
        weights: Any = tuple(np.exp(logs - logs.max()).tolist())
        return Influence(weights=weights, basis=self.basis, detail=self.detail)


def fit_exponential(estimate: Estimate) -> Influence:
    r"""$q_t \approx r^{T-t}$: least squares of $\log q_t = a + bt$ over the measured steps with $q_t > 0$, and $r = e^{-b}$.

    Steps whose measured weight is not above 0 are left out. That tilts the fit towards large weights, so `detail` names the share left
    out beside $R^2$ of the fit: if it is not small, take more repeats instead.

    Reference: Hong, Wang & Zhou 2022 (FAccT): a measured influence is roughly exponential in the step.
    """
    if not isinstance(estimate, Estimate):
        raise InputError(f"estimate: got {type(estimate).__name__}; it needs what an estimator of lethe.influence returns.")
    above = estimate.weights > 0
    if above.sum() < 2:
        raise InputError(
            f"weights: {int(above.sum())} of {len(above)} are above 0; a line needs two.",
            remedy="take more repeats, or measure more steps.",
        )
    logs = np.log(estimate.weights[above])
    line: Any = stats.linregress(estimate.probes[above], logs)
    # A constant influence is a straight line, whatever rounding says of its spread.
    r_squared = 1.0 if logs.std() <= 1e-10 else line.rvalue**2
    left_out = 1.0 - float(above.mean())
    detail = f"{estimate.detail}; exponential fit, R^2 = {r_squared:.4f}, {left_out:.0%} of {len(above)} entries left out"
    return Influence(rate=math.exp(-line.slope), basis=estimate.basis, detail=detail)
