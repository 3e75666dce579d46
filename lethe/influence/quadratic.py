"""The influence of noise on a quadratic loss: exact, from the eigenvalues of its Hessian. Users call it where they know or
assume a curvature, and give the estimate to `lethe.allocate`, which places the noise of the steps.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from lethe.calculus.domains import require_vector
from lethe.errors import InputError
from lethe.influence.data import AuxiliaryData, Estimate, PublicData, SyntheticData, require_public, require_statement
from lethe.influence.retraining import left_to_retraining, prepared_rows, refuse_pass_averages
from lethe.run.losses import LeastSquares
from lethe.run.losses.linear import require_linear_loss
from lethe.run.participation import Participation
from lethe.run.regularisers import L2
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array


@dataclass(frozen=True, slots=True, eq=False)
class PublicCurvatures:
    r"""The eigenvalues of a Hessian that anybody may know: assumed, or computed from public data.

    Args:
        eigenvalues: $\lambda_1, \lambda_2, \dots \ge 0$, in loss per parameter unit squared, each as often as it occurs; one is above 0.
        statement: where they come from and why they are public.
    """

    basis: ClassVar[Literal["quadratic"]] = "quadratic"
    eigenvalues: Array
    statement: str = field(kw_only=True)

    def __post_init__(self) -> None:
        require_statement(self.statement)
        eigenvalues = require_vector("eigenvalues", self.eigenvalues, low=0.0)
        if not eigenvalues.max() > 0:
            raise InputError("eigenvalues: all are 0; noise then has no influence at all.", remedy="give those above 0.")
        eigenvalues.flags.writeable = False
        object.__setattr__(self, "eigenvalues", eigenvalues)

    @property
    def origin(self) -> str:
        """Where they come from, in words."""
        return f"{len(self.eigenvalues)} eigenvalues ({self.statement.strip()})"


def quadratic_influence(run: Run, data: PublicCurvatures | AuxiliaryData) -> Estimate:
    r"""The influence of each step's noise on the expected final loss of a quadratic with eigenvalues $\lambda_i$.

    $$q_t = \frac12\sum_i \lambda_i \prod_{k>t}(1 - \eta_k\lambda_i)^2 \prod_{k\ge t}(1 + \eta_k\kappa)^{-2}$$

    with step sizes $\eta_k$ and $\kappa$ the strength of explicit ridge regularisation, which shrinks noise from its own step on. The final
    loss is the quadratic alone, without the regulariser.

    Exact for full batches; for smaller ones every batch's Hessian is taken to be the mean one. From data the quadratic is the mean loss of
    least squares (without truncation), or the one that touches a loss of classes at parameters 0.

    Args:
        run: gives T, the step sizes and the ridge; its noise does not matter.
        data: eigenvalues, or the data whose features give them.
    """
    require_public(run, data, PublicCurvatures, SyntheticData, PublicData)
    refuse_pass_averages(run)
    if not all(isinstance(part, L2) for part in run.regularisers):
        raise left_to_retraining("regulariser: it is not ridge alone, and only ridge keeps a quadratic quadratic.", "regulariser")
    eigenvalues = data.eigenvalues if isinstance(data, PublicCurvatures) else _eigenvalues(run, data)
    is_quadratic = isinstance(data, PublicCurvatures) or isinstance(run.loss, LeastSquares)
    how = "exact on" if is_quadratic and run.batches.participation is Participation.EVERY_STEP else "as for full batches and"
    return Estimate(
        steps=run.total_steps,
        probes=np.arange(1, run.total_steps + 1),
        weights=np.exp(_log_weights(eigenvalues, run.step_sizes, run.strong_convexity)),
        errors=np.zeros(run.total_steps),
        basis=data.basis,
        detail=f"{how} the quadratic of {data.origin}",
    )


def _log_weights(eigenvalues: Array, step_sizes: Array, ridge: float) -> Array:
    """log q_t, shape (T,): one eigenvalue at a time, so that memory stays at a few arrays of length T."""
    shrunk = _sums_to_the_end(np.log1p(step_sizes * ridge))[:-1]
    total = np.full(len(step_sizes), -np.inf)
    for eigenvalue in eigenvalues[eigenvalues > 0]:
        with np.errstate(divide="ignore"):  # a step of 1 / eigenvalue forgets the mode: log 0 is -inf, as it should be
            contracted = _sums_to_the_end(np.log(np.abs(1.0 - step_sizes * eigenvalue)))[1:]
        total = np.logaddexp(total, np.log(eigenvalue / 2) + 2 * (contracted - shrunk))
    return total


def _sums_to_the_end(terms: Array) -> Array:
    """The sums of terms t, t + 1, ..., T for t = 1..T, and 0 after the last, shape (T + 1,)."""
    return np.append(np.cumsum(terms[::-1])[::-1], 0.0)


def _eigenvalues(run: Run, data: AuxiliaryData) -> Array:
    """Of the mean loss: those of the rows' second moments, times those of l'' in scores of 0 (of numbers without truncation)."""
    loss, records = require_linear_loss(run.loss), data.records(run)
    rows = prepared_rows(records.features, loss).numpy()
    loss = loss.for_classes(records.classes)
    of_scores = np.array([loss.curvature_bound])
    if not isinstance(loss, LeastSquares):
        (curvature,) = loss.curvatures(np.zeros((1, loss.outputs)), np.zeros(1)).dense()
        of_scores = np.linalg.eigvalsh(curvature)[-loss.curvature_rank :].astype(np.float64)  # k - 1 times 1/k for softmax
    if of_scores.max() <= 0.0:
        what = f"loss.kind: got {loss.kind}, which has no curvature where training begins; no quadratic stands for it."
        raise left_to_retraining(what, "run.loss")
    return np.outer(np.linalg.svd(rows, compute_uv=False) ** 2 / len(rows), of_scores).ravel()
