r"""Objective perturbation: the minimiser of a risk that was tilted by Gaussian noise, released up to a certified error of the solver.

$$J(w) = \sum_i f_i(w) + \frac{n\lambda}{2}\|w\|^2 + \langle b, w\rangle,\quad b \sim N(0, \sigma^2I);\qquad
  \tilde w + N(0, \tau^2I),\quad \|\nabla J(\tilde w)\|/n \le \eta.$$

`perturbed_minimiser` has the guarantee and its proof. The noise of the release hides the solver's error ($\nu = 2\eta/(\lambda\tau)$)
and is a tenth, or less, of what b moves the minimiser by in any direction.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lethe.calculus.conversions import gdp_mu
from lethe.calculus.crossing import smallest
from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.guarantees import ApproxDP, Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up
from lethe.calculus.targets import overshoot, require_target
from lethe.certificates.derivation import Derivation, derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.documents.synonyms import in_other_words
from lethe.errors import CalibrationError, InputError
from lethe.mechanisms.base import PrivateWeights
from lethe.mechanisms.minimisers.given_records import given_records
from lethe.mechanisms.minimisers.minimiser import minimiser
from lethe.mechanisms.minimisers.output_perturbation import shared_findings
from lethe.mechanisms.minimisers.perturbed_minimiser import (
    PerturbedMinimiser,
    gradient_vertices,
    log_determinant,
    minimiser_profile,
    ridge_for,
)
from lethe.mechanisms.tables import public_records
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.run.run import Neighbours

CITATIONS = (
    Citation(
        key="kifer-2012",
        text="Kifer, Smith, Thakurta 2012, Private convex empirical risk minimization and high-dimensional regression, COLT.",
    ),
    Citation(
        key="iyengar-2019",
        text="Iyengar, Near, Song, Thakkar, Thakurta, Wang 2019, Towards practical differentially private convex optimization, IEEE S&P.",
    ),
    Citation(
        key="redberg-2023",
        text="Redberg, Koskela, Wang 2023, Improving the privacy and practicality of objective perturbation, arXiv:2401.00583.",
    ),
)
_RELEASE_SHARE = 0.1  # of what b moves the minimiser by where the risk is most curved: a hundredth of its variance
_SOLVER_SHARE = 0.03  # of one record's mu: a thousandth of its square
_FLOOR = 1e-12  # what rounding leaves of a gradient, as a share of its size


def release_std(loss: LinearLoss, *, records: int, regularisation: float, noise_std: float) -> float:
    r"""The noise of the release: $\tau = \sigma/(10\,n(\lambda + \beta))$, in parameter units.

    Args:
        loss: gives its smoothness $\beta$.
        records: n.
        regularisation: $\lambda > 0$, per record.
        noise_std: $\sigma$, of b.
    """
    return _RELEASE_SHARE * noise_std / (records * (regularisation + loss.smoothness))


def solver_tolerance(loss: LinearLoss, *, records: int, weights: int, regularisation: float, noise_std: float) -> float:
    r"""The solver's $\eta$, from public numbers: such that $\nu$ is 3 % of $G/\sigma$, or more where rounding needs it.

    Args:
        loss: gives G, the bound on a record's gradient.
        records, weights: n, and the number of weights.
        regularisation: $\lambda > 0$, per record.
        noise_std: $\sigma > 0$, of b.
    """
    bound = loss.row_gradient_bound
    std = release_std(loss, records=records, regularisation=regularisation, noise_std=noise_std)
    wanted = 0.5 * _SOLVER_SHARE * (bound / noise_std) * regularisation * std
    return max(wanted, _FLOOR * (bound + noise_std * math.sqrt(weights) / records))


@in_other_words
def objective_guarantee(
    loss: LinearLoss,
    *,
    records: int,
    weights: int,
    regularisation: float,
    noise_std: float,
    neighbours: Neighbours = "replace_one",
) -> PerturbedMinimiser:
    r"""The guarantee of `objective_perturbation` with noise $\sigma$, its solver's error included.

    Args:
        loss: l, with the bound R on the norm of the rows, the intercept included.
        records: n >= 1, public.
        weights: Dk, the number of parameters.
        regularisation: $\lambda > 0$, of the mean of the losses.
        noise_std: $\sigma > 0$, of b, in units of one record's gradient.
        neighbours: replace_one or zero_out.
    Raises:
        InputError: an argument is out of its range.
    """
    model, size, count = require_linear_loss(loss), require_count("records", records), require_count("weights", weights)
    curvature, noise = require_positive("regularisation", regularisation), require_positive("noise_std", noise_std)
    tolerance = solver_tolerance(model, records=size, weights=count, regularisation=curvature, noise_std=noise)
    std = release_std(model, records=size, regularisation=curvature, noise_std=noise)
    solver_mu = round_up(2.0 * tolerance / (curvature * std), 4e-15)
    return minimiser_profile(model, ridge=size * curvature, noise_std=noise, neighbours=neighbours, solver_mu=solver_mu)


def objective_derivation(loss: LinearLoss, *, records: int, weights: int, regularisation: float, noise_std: float) -> Derivation:
    """The numbers that `objective_guarantee` follows from.

    Args:
        loss, records, weights, regularisation, noise_std: as `objective_guarantee`.
    """
    numbers = {"records": records, "weights": weights, "regularisation": float(regularisation), "noise_std": float(noise_std)}
    return derivation("objective perturbation", loss=loss.to_document(), **numbers)


@in_other_words
def objective_noise_std(
    loss: LinearLoss,
    *,
    records: int,
    weights: int,
    regularisation: float,
    target: Guarantee,
    neighbours: Neighbours = "replace_one",
) -> float:
    r"""The smallest $\sigma$, from above, for which `objective_guarantee` meets the target.

    Args:
        loss, records, weights, regularisation, neighbours: as `objective_guarantee`.
        target: $(\epsilon, \delta)$ with $\delta > 0$; of other kinds of guarantee the mechanism has none.
    Raises:
        InputError: an argument is out of its range.
        CalibrationError: the determinants alone cost $\epsilon$ or more: the regularisation is too small.
    """
    goal = require_target(target)
    if not isinstance(goal, ApproxDP) or goal.delta_bound == 0.0:
        raise outside("target", goal.describe(), "an (epsilon, delta) with delta > 0; a perturbed minimiser is not Gaussian DP")
    model, size = require_linear_loss(loss), require_count("records", records)
    curvature = require_positive("regularisation", regularisation)
    determinant = log_determinant(model, ridge=size * curvature)
    if determinant >= goal.epsilon_bound:
        least = ridge_for(model, determinant=goal.epsilon_bound) / size
        raise CalibrationError(
            f"regularisation = {curvature:g}: the determinants alone cost epsilon = {determinant:.4g} of {goal.epsilon_bound:g}.",
            source=f"{model.name} loss, {size} records, rows of norm {model.row_norm:g}",
            remedy=f"take a regularisation well above {least:.3g}",
        )

    def excess(noise_std: float) -> float:
        bound = objective_guarantee(
            model,
            records=size,
            weights=weights,
            regularisation=curvature,
            noise_std=noise_std,
            neighbours=neighbours,
        )
        return overshoot(bound, goal)

    return smallest(excess, 1.0, start=model.row_gradient_bound / goal.epsilon_bound)


@in_other_words
def least_noise_std(loss: LinearLoss, *, ridge: float, target: ApproxDP, neighbours: Neighbours = "replace_one") -> float:
    r"""A number that `objective_noise_std` is never below, at a small part of its time; near it, since one vertex costs most.

    The cost is at least that of the m longest vertices: $m\,\delta_\mu(\epsilon - c) \le \delta$ for their $\mu = L/\sigma$.

    Args:
        loss: l, with the bound R on the norm of the rows.
        ridge: $\Lambda > 0$, of the sum of the losses.
        target: $(\epsilon, \delta)$.
        neighbours: replace_one or zero_out.
    Returns:
        $\sigma$, in units of one record's gradient; infinity where the determinants alone cost $\epsilon$.
    """
    left = target.epsilon_bound - log_determinant(loss, ridge=ridge)
    if left <= 0.0:
        return math.inf
    vertices = (vertex for curved, listed in gradient_vertices(loss, neighbours) if curved for vertex in listed)
    length, count = max(vertices)
    mu = gdp_mu(left, target.delta_bound / count)
    # A little less, for what gdp_mu and the determinant were rounded by.
    return (1.0 - 1e-9) * length * loss.row_gradient_bound / mu if mu > 0.0 else 0.0


@in_other_words
def objective_perturbation(
    features: Any,
    targets: Any,
    *,
    loss: LinearLoss,
    regularisation: float,
    target: Guarantee | None = None,
    noise_std: float | None = None,
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
        target: $(\epsilon, \delta)$; or
        noise_std: $\sigma > 0$ of b in its place, in units of one record's gradient, whose cost `objective_guarantee` says.
        neighbours: replace_one or zero_out.
        records: n, public; needed for zero_out, where zeroed-out records count and are not among the rows.
        generator: None where privacy matters; a given one makes the statement `seeded`, and void.
    Raises:
        InputError: an argument is out of its range, or not one of target and noise_std.
        CalibrationError: the regularisation is too small for the target.
        LetheError: the solver met its rounding before its tolerance; nothing is released then.
    """
    model, random = require_linear_loss(loss), noise_generator(generator)
    given = given_records(features, targets, model)
    size, shape = public_records(records, given.present, neighbours), given.shape
    if target is not None and noise_std is None:
        noise_std = objective_noise_std(
            model, records=size, weights=math.prod(shape), regularisation=regularisation, target=target, neighbours=neighbours
        )
    elif target is not None or noise_std is None:
        raise InputError("target and noise_std: it needs one of the two.", source="the arguments target and noise_std")
    noise_std = require_positive("noise_std", noise_std)
    public: dict[str, Any] = {
        "records": size,
        "weights": math.prod(shape),
        "regularisation": float(regularisation),
        "noise_std": noise_std,
    }
    tolerance = solver_tolerance(model, **public)
    tilt = noise_std / size * random.standard_normal(shape)
    found = minimiser(given.objective(records=size, regularisation=regularisation, tilt=tilt), tolerance)
    del public["weights"]
    std = release_std(model, **public)
    curved = f"slope Lipschitz with {model.smoothness:g}, Hessian of rank at most {model.curvature_rank}"
    return PrivateWeights(
        weights=found + std * random.standard_normal(shape),
        statement=Statement(
            name=f"objective perturbation, {model.name} loss",
            guarantee=objective_guarantee(model, weights=math.prod(shape), neighbours=neighbours, **public),
            neighbours=neighbours,
            findings=(
                *shared_findings(model, float(regularisation)),
                holds("generalised linear", curved, evidence="enforced"),
                holds("unconstrained", "the minimiser is over all weights", evidence="enforced"),
                holds("solver's error", f"gradient at most {tolerance:g}, hidden by noise of {std:g}", evidence="enforced"),
            ),
            citations=CITATIONS,
            seeded=generator is not None,
            derivation=objective_derivation(model, weights=math.prod(shape), **public),
            records=size,
        ),
        noise_std=noise_std,
    )
