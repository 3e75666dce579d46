r"""Objective perturbation: the minimiser of a risk that was tilted by Gaussian noise, released up to a certified error of the solver.

`MinimiserMechanism` of the estimators calls it with records, loss and noise; `lethe.accounting.derivations` calls `objective_guarantee` to
recompute a file. $f_i$ is the loss of record i at weights w, $\Lambda$ the ridge times the n records, $\sigma$ the noise of the tilt b,
$\tau$ that of the release.

$$J(w) = \sum_i f_i(w) + \frac\Lambda2\|w\|^2 + \langle b, w\rangle,\quad b \sim N(0, \sigma^2I),\quad \Lambda = n\lambda;\qquad
  \tilde w + N(0, \tau^2I),\quad \|\nabla J(\tilde w)\|/n \le \eta.$$

The noise of the release hides the solver's error and is a tenth, or less, of what b moves the minimiser by in any direction. The $f_i$ are
convex with Lipschitz gradients, functions of the scores $W^\top u_i$. What it costs, in the steps of docs/theory.md, section 16:

1. *Determinants* of Hessians of rank r and trace at most T cost $c = r\log(1 + T/(r\Lambda))$.
2. *Vertices.* The difference of two records' gradients lies in the convex hull of 0 and vectors $v_j$. With $\mu_j = \|v_j\|/\sigma$
   $$\delta(\epsilon) \le \sum_j\delta_{\mu_j}(s)\ \text{ for }s = \epsilon - c \ge 0,\qquad
     \delta(\epsilon) \le 1 - e^s\Big(1 - \sum_j\delta_{\mu_j}(0)\Big)\ \text{ for }s < 0.$$
3. *Slopes of both signs* (Huber's loss): in the direction that takes the record away, one of two opposite vertices is enough.
4. *Solver.* Every $\mu_j$ becomes $\sqrt{\mu_j^2+\nu^2}$, $\nu \le 2\eta/(\lambda\tau)$, and 0 a vertex with $\nu$.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from lethe.calculus.composition import overshoot, require_target
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.crossing import smallest
from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.calculus.guarantees import ApproxDP, Guarantee
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser
from lethe.calculus.rounding import round_up
from lethe.certificates.derivation import Derivation, derivation
from lethe.certificates.findings import holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import CalibrationError, InputError
from lethe.errors.names import in_other_words
from lethe.mechanisms.base import PrivateWeights, require_swap
from lethe.mechanisms.minimisers.newton import minimiser
from lethe.mechanisms.minimisers.objective import Objective, records_of
from lethe.mechanisms.minimisers.output_perturbation import shared_findings
from lethe.mechanisms.tables import public_records
from lethe.run.losses import Softmax, TruncatedSoftmax
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
# With or without the determinants of step 1: lengths of vertices in units of the largest gradient, and how many there are.
Vertices = tuple[bool, tuple[tuple[float, int], ...]]
_CELLS = 32  # of the angle between two records' features


def log_determinant(loss: LinearLoss, *, ridge: float) -> float:
    r"""$c = r\log(1 + T/(r\Lambda))$, rounded up, for $T = R^2\,\mathrm{tr}\,l''$ and the ridge $\Lambda > 0$ of the sum of the losses."""
    return round_up(loss.curvature_rank * math.log1p(_trace(loss) / require_positive("ridge", ridge)), 4e-15)


def ridge_for(loss: LinearLoss, *, determinant: float) -> float:
    r"""The $\Lambda$ at which `log_determinant` is `determinant` > 0, up to rounding: $T/(r(e^{c/r}-1))$."""
    return _trace(loss) / math.expm1(require_positive("determinant", determinant) / loss.curvature_rank)


def _trace(loss: LinearLoss) -> float:
    return loss.row_norm * loss.row_norm * loss.curvature_trace / loss.curvature_rank


def minimiser_profile(
    loss: LinearLoss, *, ridge: float, noise_std: float, solver_mu: float, neighbours: Neighbours = "replace_one"
) -> PerturbedMinimiser:
    r"""The guarantee of the module's first lines, for $\Lambda$, $\sigma$ in units of one record's gradient, and $\nu$, 0 if w is exact."""
    # What underflows is not 0.
    largest = max(loss.row_gradient_bound / require_positive("noise_std", noise_std), 5e-324)
    extra = require_nonnegative("solver_mu", solver_mu, allow_infinity=False)
    determinant = log_determinant(loss, ridge=ridge)
    still = ((extra, 1),) if extra > 0.0 else ()
    cases = (
        (
            determinant if curved else 0.0,
            (*((round_up(math.hypot(length * largest, extra), 1e-15), count) for length, count in vertices), *still),
        )
        for curved, vertices in gradient_vertices(loss, neighbours)
    )
    return PerturbedMinimiser(tuple(cases))


def gradient_vertices(loss: LinearLoss, neighbours: Neighbours) -> tuple[Vertices, ...]:
    r"""The vertices of step 2, with lengths in units of the gradient bound G, one list for each case that could be the worst.

    - One score, slope of one sign: g; when replaced g, -g' and g - g', the last at most 2 long.
    - One score, slope of both signs: step 3; when replaced $\pm g \pm g'$, two of squared length 4p and two of 4(1-p) for some p, covered
      in cells of p, with the larger end of each.
    - Softmax, $G = \sqrt2R$: $u\otimes(e_j - e_y)$, K - 1 of length 1; when replaced, differences of two of them as well. For equal
      classes $\|u\otimes r - u'\otimes r'\|^2 \le R^2(4 + 2\langle r, r'\rangle)$ is 8 for the K - 1 pairs with j = j', 6 for the others;
      for different classes one pair reaches 8 and no other more than 6. Truncated, all of it times the cut.
    """
    replaced = require_swap(neighbours) == 2.0
    if isinstance(loss, Softmax | TruncatedSoftmax):
        other_classes = loss.target_classes - 1
        if not replaced:
            return ((True, ((1.0, other_classes),)),)
        pairs = ((2.0, other_classes), (math.sqrt(3.0) * (1.0 + 2.0**-50), other_classes * (other_classes - 1)), (1.0, 2 * other_classes))
        return ((True, tuple(pair for pair in pairs if pair[1] > 0)),)
    if loss.outputs > 1:
        raise outside("loss", loss, "a loss with one score, or Softmax(classes)")
    if loss.one_sided:
        return ((True, ((2.0, 1), (1.0, 2)) if replaced else ((1.0, 1),)),)
    if not replaced:
        return ((True, ((1.0, 1),)), (False, ((1.0, 2),)))
    edges = np.linspace(0.5, 1.0, _CELLS + 1).tolist()
    return tuple(
        (True, ((round_up(2.0 * math.sqrt(high)), 2), (round_up(2.0 * math.sqrt(max(1.0 - low, 0.0))), 2))) for low, high in pairwise(edges)
    )


def release_std(loss: LinearLoss, *, records: int, regularisation: float, noise_std: float) -> float:
    r"""The noise of the release: $\tau = \sigma/(10\,n(\lambda + \beta))$, $\beta$ the smoothness, in parameter units."""
    return _RELEASE_SHARE * noise_std / (records * (regularisation + loss.smoothness))


def solver_tolerance(loss: LinearLoss, *, records: int, weights: int, regularisation: float, noise_std: float) -> float:
    r"""The solver's $\eta$, from public numbers: such that $\nu$ is 3 % of $G/\sigma$, or more where rounding needs it."""
    bound = loss.row_gradient_bound
    std = release_std(loss, records=records, regularisation=regularisation, noise_std=noise_std)
    tolerance = 0.5 * _SOLVER_SHARE * (bound / noise_std) * regularisation * std
    return max(tolerance, _FLOOR * (bound + noise_std * math.sqrt(weights) / records))


def objective_guarantee(
    loss: LinearLoss, *, records: int, weights: int, regularisation: float, noise_std: float, neighbours: Neighbours = "replace_one"
) -> PerturbedMinimiser:
    r"""The guarantee of `objective_perturbation` of Dk weights with noise $\sigma$, its solver's error included."""
    model, size, count = require_linear_loss(loss), require_count("records", records), require_count("weights", weights)
    curvature, noise = require_positive("regularisation", regularisation), require_positive("noise_std", noise_std)
    tolerance = solver_tolerance(model, records=size, weights=count, regularisation=curvature, noise_std=noise)
    std = release_std(model, records=size, regularisation=curvature, noise_std=noise)
    solver_mu = round_up(2.0 * tolerance / (curvature * std), 4e-15)
    return minimiser_profile(model, ridge=size * curvature, noise_std=noise, neighbours=neighbours, solver_mu=solver_mu)


def objective_derivation(loss: LinearLoss, *, records: int, weights: int, regularisation: float, noise_std: float) -> Derivation:
    """The numbers that `objective_guarantee` follows from."""
    numbers = {"records": records, "weights": weights, "regularisation": float(regularisation), "noise_std": float(noise_std)}
    return derivation("objective perturbation", loss=loss.to_document(), **numbers)


def objective_noise_std(
    loss: LinearLoss, *, records: int, weights: int, regularisation: float, target: Guarantee, neighbours: Neighbours = "replace_one"
) -> float:
    r"""The smallest $\sigma$, from above, for which `objective_guarantee` meets the target.

    A CalibrationError says that the determinants alone cost $\epsilon$ or more: the regularisation is too small.
    """
    goal = require_target(target)
    if not isinstance(goal, ApproxDP) or goal.delta_bound == 0.0:
        raise outside("target", goal.describe(), "an (epsilon, delta) with delta > 0; a perturbed minimiser is not Gaussian DP")
    model, size = require_linear_loss(loss), require_count("records", records)
    curvature = require_positive("regularisation", regularisation)
    determinant = log_determinant(model, ridge=size * curvature)
    if determinant >= goal.epsilon_bound:
        smallest_regularisation = ridge_for(model, determinant=goal.epsilon_bound) / size
        raise CalibrationError(
            f"regularisation = {curvature:g}: the determinants alone cost epsilon = {determinant:.4g} of {goal.epsilon_bound:g}.",
            source=f"{model.name} loss, {size} records, rows of norm {model.row_norm:g}",
            remedy=f"take a regularisation well above {smallest_regularisation:.3g}",
        )

    def excess(noise_std: float) -> float:
        public = {"records": size, "weights": weights, "regularisation": curvature, "noise_std": noise_std}
        return overshoot(objective_guarantee(model, neighbours=neighbours, **public), goal)

    return smallest(excess, 1.0, start=model.row_gradient_bound / goal.epsilon_bound)


def least_noise_std(loss: LinearLoss, *, ridge: float, target: ApproxDP, neighbours: Neighbours = "replace_one") -> float:
    r"""A number that `objective_noise_std` is never below, at a small part of its time; near it, since one vertex costs most.

    The cost is at least that of the m longest vertices: $m\,\delta_\mu(\epsilon - c) \le \delta$ for their $\mu = L/\sigma$.
    Infinity where the determinants alone cost $\epsilon$.
    """
    remaining = target.epsilon_bound - log_determinant(loss, ridge=ridge)
    if remaining <= 0.0:
        return math.inf
    vertices = (vertex for curved, listed in gradient_vertices(loss, neighbours) if curved for vertex in listed)
    length, count = max(vertices)
    mu = gdp_mu(remaining, target.delta_bound / count)
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
        target: $(\epsilon, \delta)$; or
        noise_std: $\sigma > 0$ of b in its place, in units of one record's gradient, whose cost `objective_guarantee` says.
        features, targets, loss, regularisation, neighbours, records, generator: as `output_perturbation`.
    Raises:
        InputError: an argument is out of its range, or not one of target and noise_std.
        CalibrationError: the regularisation is too small for the target.
        LetheError: rounding kept the solver from its tolerance; nothing is released then.
    """
    model, random = require_linear_loss(loss), noise_generator(generator)
    data = records_of(features, targets, model)
    size, shape = public_records(records, len(data), neighbours), (data.columns, model.outputs)
    public: dict[str, Any] = {"records": size, "weights": math.prod(shape), "regularisation": float(regularisation)}
    if target is not None and noise_std is None:
        noise_std = objective_noise_std(model, target=target, neighbours=neighbours, **public)
    elif target is not None or noise_std is None:
        raise InputError("target and noise_std: it needs one of the two.", source="the arguments target and noise_std")
    noise_std = public["noise_std"] = require_positive("noise_std", noise_std)
    tolerance = solver_tolerance(model, **public)
    tilt = noise_std / size * random.standard_normal(shape)
    objective = Objective(records=size, data=data, loss=model, regularisation=float(regularisation), tilt=tilt)
    near, std = minimiser(objective, tolerance), release_std(model, records=size, regularisation=regularisation, noise_std=noise_std)
    curved = f"slope Lipschitz with {model.smoothness:g}, Hessian of rank at most {model.curvature_rank}"
    statement = Statement(
        name=f"objective perturbation, {model.name} loss",
        guarantee=objective_guarantee(model, neighbours=neighbours, **public),
        neighbours=neighbours,
        findings=(
            *shared_findings(model, float(regularisation)),
            holds("generalised linear", curved, evidence="enforced"),
            holds("unconstrained", "the minimiser is over all weights", evidence="enforced"),
            holds("solver's error", f"gradient at most {tolerance:g}, hidden by noise of {std:g}", evidence="enforced"),
        ),
        citations=CITATIONS,
        seeded=generator is not None,
        derivation=objective_derivation(model, **public),
        records=size,
    )
    return PrivateWeights(weights=near + std * random.standard_normal(shape), statement=statement, noise_std=noise_std)
