r"""Output perturbation: the minimiser of a regularised empirical risk, released with Gaussian noise.

`MinimiserMechanism` of the estimators calls it; `lethe.accounting.derivations` recomputes `output_sensitivity` of a file. $\lambda$ is the
ridge, n the records, $\tau$ the gradient norm at which the solver stops.

$$\tilde w + N(0, \sigma^2 I),\qquad \|\tilde w - w^*\| \le \tau/\lambda,\qquad
  w^* = \arg\min_w F(w),\quad F(w) = \frac1n\sum_i f_i(w) + \frac\lambda2\|w\|^2,$$

is $(s/\sigma)$-GDP with $s = \frac1\lambda(\frac{2G\text{ or }G}n + 2\tau)$ for gradients of norm at most G (docs/theory.md, section 16).
"""

from typing import Any

import numpy as np

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import above
from lethe.certificates.derivation import Derivation, derivation
from lethe.certificates.findings import Finding, holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors.names import in_other_words
from lethe.mechanisms.base import PrivateWeights, gaussian_guarantee, gaussian_noise_std, require_swap
from lethe.mechanisms.minimisers.newton import minimiser
from lethe.mechanisms.minimisers.objective import Objective, records_of
from lethe.mechanisms.tables import projected, public_records
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.run.run import Neighbours

CITATION = Citation(
    key="chaudhuri-2011",
    text="Chaudhuri, Monteleoni, Sarwate 2011, Differentially private empirical risk minimization, arXiv:0912.0071, Corollary 8.",
)
# The solver's error as a share of one gradient bound over n, and the least that rounding allows, as a share of the bound.
_SOLVER_SHARE, _SOLVER_FLOOR = 1e-3, 1e-12


def solver_tolerance(gradient_bound: float, records: int) -> float:
    r"""$\tau$: a thousandth of what one record can add to the gradient, from public numbers only."""
    return gradient_bound * max(_SOLVER_SHARE / records, _SOLVER_FLOOR)


def output_sensitivity(
    *, records: int, regularisation: float, gradient_bound: float, tolerance: float, neighbours: Neighbours = "replace_one"
) -> float:
    r"""How far two neighbours' points can be apart, rounded up: $s = ((2\text{ or }1)\,G/n + 2\tau)/\lambda$."""
    size = require_count("records", records)
    curvature = require_positive("regularisation", regularisation)
    # Quotients that underflow are not 0.
    one_minimiser = float(above(require_swap(neighbours) * require_positive("gradient_bound", gradient_bound) / size))
    return float(above((one_minimiser + 2.0 * require_nonnegative("tolerance", tolerance, allow_infinity=False)) / curvature, 1e-15))


@in_other_words
def output_perturbation(
    features: Any,
    targets: Any,
    *,
    loss: LinearLoss,
    regularisation: float,
    target: Guarantee,
    neighbours: Neighbours = "replace_one",
    records: int | None = None,
    generator: np.random.Generator | None = None,
) -> PrivateWeights:
    r"""Train and release.

    Args:
        features: shape (n, d); rows longer than the loss's feature_norm are projected. Or `RecordSums`, of records in blocks.
        targets: shape (n,): classes 0, 1, ..., or numbers, as the loss needs; None where features are `RecordSums`.
        loss: l, with the public bound R on the norm of the features, and whether to append a constant feature.
        regularisation: $\lambda > 0$, public; the intercept is regularised as well.
        target: the guarantee to meet: (epsilon, delta), mu-GDP, rho-zCDP or a Rényi curve.
        neighbours: replace_one or zero_out.
        records: n, public; needed for zero_out, where zeroed-out records count and are not among the rows.
        generator: None where privacy matters; a given one makes the statement `seeded`, and void.
    Raises:
        LetheError: rounding kept the solver from its tolerance; nothing is released then.
    """
    model, noise = require_linear_loss(loss), noise_generator(generator)
    data = records_of(features, targets, model)
    size, bound = public_records(records, len(data), neighbours), model.row_gradient_bound
    tolerance = solver_tolerance(bound, size)
    sensitivity = output_sensitivity(
        records=size, regularisation=regularisation, gradient_bound=bound, neighbours=neighbours, tolerance=tolerance
    )
    noise_std = gaussian_noise_std(sensitivity, target)
    exact = minimiser(Objective(records=size, data=data, loss=model, regularisation=float(regularisation)), tolerance)
    statement = Statement(
        name=f"output perturbation, {model.name} loss",
        guarantee=gaussian_guarantee(sensitivity, noise_std),
        neighbours=neighbours,
        findings=(
            *shared_findings(model, float(regularisation)),
            holds("solver's error", f"gradient at most {tolerance:g}, counted in the sensitivity", evidence="enforced"),
        ),
        citations=(CITATION,),
        seeded=generator is not None,
        derivation=output_derivation(model, records=size, regularisation=regularisation, noise_std=noise_std),
        records=size,
    )
    return PrivateWeights(weights=exact + noise_std * noise.standard_normal(exact.shape), statement=statement, noise_std=noise_std)


def output_derivation(loss: LinearLoss, *, records: int, regularisation: float, noise_std: float) -> Derivation:
    """The numbers that the guarantee follows from."""
    numbers = {"records": int(records), "regularisation": float(regularisation), "noise_std": float(noise_std)}
    return derivation("output perturbation", loss=loss.to_document(), **numbers)


def shared_findings(loss: LinearLoss, regularisation: float) -> tuple[Finding, ...]:
    """The findings that both ways to perturb a minimiser rest on."""
    return (
        projected(loss.row_norm),
        holds("bounded gradients", f"{loss.name} loss: at most {loss.row_gradient_bound:g} for every target", evidence="enforced"),
        holds("strongly convex", f"regularisation {regularisation:g} on every weight", evidence="enforced"),
        holds("public size", "the number of records is the same on both data sets", evidence="declared"),
    )
