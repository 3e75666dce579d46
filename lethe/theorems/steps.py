r"""The Lipschitz constant of each step of a run: the smallest whose hypotheses hold, and why it holds.

The shift theorems, noise planners and unlearning call it with a Run: two runs on neighbouring data are after a step at most that constant
times as far apart as before. $\lambda$ is the step size, K the most records a batch holds, b its nominal size, C the gradient bound, $\eta$
and r what gradients and rounding are off by.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from lethe.calculus.rounding import raised
from lethe.certificates.parts import StepConstant
from lethe.run.effective_loss import clipped_along_a_line, descended_curvature, descended_name, descends_envelope, gradient_error
from lethe.run.participation import BatchSizes, Participation, unknown_participation, unknown_sizes
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step, plain_step, ridge_contraction
from lethe.theorems.shift import engine as shift
from lethe.theorems.shuffled.positions import as_passes

# Chance, over all batches of a run, that a batch of random size is larger than the size its step constant allows for.
OVERFILL_SLACK = 1e-18


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The contraction data of a run, one entry a step.

    `lipschitz` is of step t's map from where the shift of step t-1 is measured (before its proximal step); `diameter` says how large that
    shift can be at all, None when the domain is unbounded; `constant` is the largest of `lipschitz`, with its reason. `errors` $e_t$ say by
    how much more step t may bring two iterates apart, because gradients are known up to an error only and iterates are rounded, in
    parameter units; None: both are exact. All have shape (T,). `slack` is the probability that some batch holds more, to be added to delta;
    what a cap on batches costs comes on top.
    """

    lipschitz: Array
    diameter: Array | None
    constant: StepConstant
    errors: Array | None
    slack: float


def step_constants(run: Run) -> Steps | None:
    r"""The Lipschitz constants of a run's steps, or None when no smoothness is known, or so much that its product with a step overflows.

    The noise of step $t$ comes before its proximal step, so the contraction $1/(1+\lambda_t\kappa)$ of that proximal step counts in
    the *next* step's constant, and a domain of diameter $D$ bounds the shift, measured before the proximal step, by
    $D(1+\lambda_t\kappa)$ only.

    A batch of random size (poisson, random_allocation, balls_in_bins) is still divided by the nominal $b$: with $K$ records in it the step
    is that of a step size $\lambda K/b$. The constants hold for every batch of at most `largest` records, and `slack` bounds the chance of
    a larger one.
    Reference: docs/theory.md, "The Lipschitz constant of one step".
    """
    curvature = descended_curvature(run)
    if curvature is None or not np.isfinite(largest_curvature(run)):
        return None
    weak_convexity, smoothness = curvature
    smallest, largest, slack = batch_sizes(run)
    sizes = run.step_sizes * (np.array([[smallest], [largest]]) / run.batch_size)
    if not run.clips:
        raw, why = plain_step(sizes, weak_convexity, smoothness), "no clipping active"
    elif descends_envelope(run):
        raw, why = plain_step(sizes, weak_convexity, smoothness), "convex and smooth whatever clip_norm is"
    elif clipped_along_a_line(run) and not run.clips_in_groups:
        raw, why = generalised_linear_step(sizes, weak_convexity, smoothness), "clipping keeps its curvature"
    else:
        where = " in groups" if run.clips_in_groups else " along a direction" if run.clip_method == "directional_isotropic" else ""
        raw, why = clipped_step(sizes, weak_convexity, smoothness), f"clipped{where}, by projection"
    raw = raw.max(axis=0)  # convex in the size, so that the ends decide
    errors = _errors(run, largest, raw)
    contraction = ridge_contraction(run.step_sizes, run.strong_convexity)
    lipschitz = np.array(raw, dtype=np.float64)
    # A product that underflows is not 0: the step does not forget everything.
    lipschitz[1:] = np.where(contraction[:-1] == 1.0, lipschitz[1:], raised(lipschitz[1:] * contraction[:-1]))
    if run.strong_convexity > 0:
        why += f", proximal ridge {run.strong_convexity:g}"
    with np.errstate(over="ignore"):
        diameter = None if np.isinf(run.diameter) else run.diameter / contraction
    return Steps(
        lipschitz=lipschitz,
        diameter=diameter,
        constant=StepConstant(
            constant=float(lipschitz[1:].max() if len(lipschitz) > 1 else lipschitz[0]), certificate=f"{descended_name(run)}, {why}"
        ),
        errors=errors,
        slack=slack,
    )


def _errors(run: Run, largest: int, expansion: Array) -> Array | None:
    r"""$e_t = 2\lambda_t\frac Kb\eta C + \max(1, L_t)r_t$: what gradients are off by, and what rounding adds.

    Two iterates move by sums of K gradients over b, each of them off by $\eta C$. What was rounded after the noise of the step before,
    at most $r_t$ apart, goes through step t.
    """
    share, rounding = gradient_error(run), run.rounding_errors
    if share == 0.0 and rounding is None:
        return None
    errors = run.step_sizes * (2.0 * share * run.clip_bound * (largest / run.batch_size))
    if rounding is not None:
        errors = errors + np.maximum(expansion, 1.0) * rounding
    return np.asarray(raised(errors, 2.0**-50))


def errors_mu(run: Run, steps: Steps) -> float:
    r"""What it costs to hide the errors of all steps: $\mu$ of touches of $e_t$ at every step; 0 where there are none.

    Payments add up in Theorem 1, and the roots of their sums of squares at most add up (Minkowski): a run whose touches cost $\mu$ costs
    at most $\mu$ plus this with its errors.
    """
    if steps.errors is None:
        return 0.0
    if run.pass_averages is None:
        return shift.solve(steps.lipschitz, steps.errors, run.noise_stds).mu
    passes, touches, _ = as_passes(steps.lipschitz, steps.errors, run.noise_stds, run.pass_averages, None)
    # The mean of a pass's iterates is itself rounded twice a step, whatever the weight of the iterate.
    of_the_mean = 0.0 if run.precision is None else 2.0 * run.steps_per_pass * run.precision.rounding
    together = raised(touches.sum(axis=0) + of_the_mean, 2.0**-52 * (run.steps_per_pass + 2))
    return shift.solve(passes.lipschitz, together, passes.noise_std).mu


def largest_curvature(run: Run) -> float:
    r"""$\lambda K/b \cdot \max(|m|, M)$ of the largest step and batch: how far from the identity a step may be; inf where it overflows."""
    curvature = descended_curvature(run)
    assert curvature is not None
    return float(run.step_sizes.max()) * (largest_batch(run)[0] / run.batch_size) * max(abs(bound) for bound in curvature)


def largest_batch(run: Run) -> tuple[int, float]:
    """A size that all batches stay within, and the chance that one does not, which comes on top of what a cap costs."""
    return batch_sizes(run)[1:]


def batch_sizes(run: Run) -> tuple[int, int, float]:
    """The least that a batch can hold, what all batches stay within, and the chance that one does not, beside what a cap costs.

    A batch that is drawn may be empty: it moves nothing, and no contraction can be counted on.
    """
    largest, slack = _largest_drawn(run)
    smallest = _least_drawn(run)
    cap = run.batches.cap
    return (smallest, largest, slack) if cap is None or cap > largest else (min(smallest, cap), cap, 0.0)


def _least_drawn(run: Run) -> int:
    if run.batches.exact_size:
        return run.batch_size
    certain = record_chance(run)[0] >= 1.0
    return run.records - (1 if run.neighbours == "add_or_remove" else 0) if certain else 0


def record_chance(run: Run) -> tuple[float, int]:
    """The probability that a batch of binomial size holds a given record, and the number of batches that are drawn.

    Raises:
        InputError: the design's batches are not of binomial size, or not in a way that is known.
    """
    design = run.batches
    if design.sizes is not BatchSizes.BINOMIAL:
        raise unknown_sizes(design.design, design.sizes)
    match design.participation:
        case Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            # Of groups, as if every step drew from all records: a batch can only be larger so.
            return design.groups_of_records * run.batch_size / run.records, run.total_steps
        case Participation.SECRET_SLOT:
            return 1.0 / run.steps_per_pass, run.steps_per_pass
        case Participation.FRESH_SECRET_SLOT:
            return 1.0 / run.steps_per_pass, run.total_steps
        case Participation.EVERY_STEP | Participation.PUBLIC_SLOT:
            raise unknown_sizes(design.design, design.sizes)
    raise unknown_participation(design.design, design.participation)


def _largest_drawn(run: Run) -> tuple[int, float]:
    n, b = run.records, run.batch_size
    if run.batches.exact_size:
        return b, 0.0
    chance, draws = record_chance(run)
    # The record in question, if drawn, comes on top of the others, whose number alone decides the slack.
    other_records = n if run.neighbours == "add_or_remove" else n - 1
    if chance >= 1:
        return other_records + 1, 0.0
    low, high = b - 1, other_records
    while high - low > 1:
        middle = (low + high) // 2
        if special.bdtrc(middle, other_records, chance) * draws <= OVERFILL_SLACK:
            high = middle
        else:
            low = middle
    return high + 1, OVERFILL_SLACK if high < other_records else 0.0
