r"""Choosing the shape of a gradient descent from public facts: batches, passes and step size, and the noise they are expected to need.

runs.py calls `best_shape` with the public facts before any noise is calibrated, so that only one shape has to be calibrated. Symbols: P
passes of $\ell$ batches of b records, T steps in all, step size $\eta$, gradients of norm at most G, target $\mu$-GDP; one touch is one
step that uses the record; $\tau^2$ is a noise variance, $v_p$ its shape over the passes p.

For each design the rule takes, of a small grid, the passes, the batches a pass and the step size with the smallest predicted risk
(`lethe.estimators.choice.risk`). With $s = (2\text{ or }1)\,\eta G/b$ for one touch it expects the noise

- at pass ends: $\tau_p^2 = v_ps^2/\mu^2$, once a pass, waning (`lethe.estimators.choice.run_shapes`);
- cyclic, at every step: $\tau^2 = s^2(1 + (P-1)/\ell)/\mu^2$;
- full: $\tau^2 = Ps^2/\mu^2$; Poisson: $\mu = \frac1\ell\sqrt{T(e^{s^2/\tau^2} - 1)}$;
- correlated: $\tau^2 = s^2\,\mathrm{sens}(C)^2/\mu^2$ drawn at every step, C being the square root of the prefix sums, cut to a pass,
- correlated, cyclic Poisson of g groups: the same C, cut to g; $\mu = \frac g\ell\sqrt{\frac Tg(e^{s^2\|C_{\cdot 1}\|^2/\tau^2} - 1)}$,

the values of the last-iterate theorem, and of the central limit of composition, without contraction. Where every iterate is certified,
cyclic batches need $\tau^2 = Ps^2/\mu^2$, a step may be longer than is proved to contract, and of the mean of some last iterates it takes
the one that is best. The certificate decides.

Of the mean of the last a iterates, $\bar x = \frac1a\sum_{t>T-a} x_t$ with $x_t = f x_{t-1} + w_t$ in a direction in which each step
contracts by f; a = 1 is the last iterate.

Noise at pass ends wanes: of u passes from the end its variance goes like $u^{1/3}$. Under composition, noise whose harm is
$\sum_p a_p\tau_p^2$ is best with $\tau_p^2 \propto a_p^{-1/2}$, by Cauchy and Schwarz. What a direction of curvature h has left of noise
of a time t ago is $e^{-2ht}$; over a spectrum that falls like $j^{-2}$ that makes $a \propto t^{-1/2}$, over one that falls faster almost
$t^{-1}$: exponents of a quarter and of a half. A third lies between; on generated data both were as good.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import interpolate, signal

from lethe.calculus.correlated.matrices import square_root
from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.estimators.choice.risk import curvatures, cut_losses, minimiser_missed, risks, run_losses, usual_trace
from lethe.estimators.inputs.facts import BatchDesign, NoiseShape, PublicFacts
from lethe.mechanisms.base import Array, require_swap

_SHARES = (16, 8)  # of the steps: which means are looked at, beside a pass
_MOST_BANDS = 64
_SMALLEST = 1e-6
_AWAY = (*np.geomspace(_SMALLEST, 0.2, 10).tolist(), 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)  # the 1 - f that are looked at
_EXPONENT = 1.0 / 3.0
_RATES = np.geomspace(1e-9, 100.0, 160)  # -2 log of what a pass keeps of a distance: where sums are looked at


def start_kept(factors: Array, steps: int, averaged: int) -> Array:
    r"""What is left of the start in the mean, $\frac1a\sum_{t>T-a} f^t$, with factors f in [0, 1] of any shape."""
    away = np.maximum(1.0 - factors, _SMALLEST)
    powers = (1.0 - away) ** (steps - averaged + 1)
    return np.asarray(powers * -np.expm1(averaged * np.log1p(-np.minimum(away, 1.0 - 1e-12))) / (averaged * away))


def noise_kept(factors: Array, steps: int, averaged: int, *, slots: int | None = None) -> Array:
    r"""The variance of the mean's noise: $\mathrm{sens}(C)^2\sum_j\big(\frac1a\sum_{i<a} r_{j-i}\big)^2$ with $r = C^{-1}$'s first
    column, filtered by $1/(1 - fz)$; 1 is what $\mathrm{sens}(C)^2$ and the variance of a draw are for independent noise (no slots).

    C is the square root of the prefix sums, cut to the steps of a pass (slots) and to at most 64 bands: near to what `lethe.correlate`
    finds. Factors f in [0, 1] have any shape.
    """
    logarithms, remaining = _kept_at(steps, averaged, slots)
    between = interpolate.PchipInterpolator(logarithms, remaining)  # within 2 %, where tests looked
    return np.asarray(np.exp(between(np.log(np.clip(1.0 - factors, _SMALLEST, 1.0)))))


@lru_cache(maxsize=8192)
def _kept_at(steps: int, averaged: int, slots: int | None) -> tuple[Array, Array]:
    """Logarithms of some 1 - f, ascending, and of what is left of the noise there."""
    inverse, square = _strategy(steps, slots)
    remaining: list[float] = []
    for distance in _AWAY:
        reached = np.cumsum(signal.lfilter([1.0], [1.0, distance - 1.0], inverse))
        reached[averaged:] -= reached[:-averaged].copy()
        remaining.append(float(np.square(reached / averaged).sum()) * square)
    return np.log(np.array(_AWAY)), np.log(np.array(remaining))


@lru_cache(maxsize=64)
def _strategy(steps: int, slots: int | None) -> tuple[Array, float]:
    """The first column of the inverse, and the squared sensitivity."""
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    if slots is None:
        return impulse, 1.0
    bands = min(steps, slots, _MOST_BANDS)
    column = square_root(steps, bands)
    return signal.lfilter([1.0], column[:bands], impulse), sensitivity(column, slots) ** 2


@lru_cache(maxsize=32)
def waning_variances(passes: int) -> Array:
    r"""$v_p$ in the order of the passes, with $\sum_p 1/v_p = 1$: a pass's sensitivity times $\sqrt{v_p}/\mu$ is $\mu$-GDP in all."""
    passes_left = np.arange(passes, 0, -1) - 0.5
    shape = passes_left**_EXPONENT
    variances: Array = shape * np.sum(1.0 / shape)
    variances.flags.writeable = False
    return variances


def waning_kept(decay: Array, passes: int) -> Array:
    r"""$\sum_p v_p f^{2(P-p)}$: the last iterate's variance, for passes of sensitivity over $\mu$ of 1 that keep f of a distance."""
    rates = -2.0 * np.log(np.maximum(decay, 1e-20))
    logarithms, sums = _sums(passes)
    return np.exp(np.interp(np.log(np.maximum(rates, _RATES[0])), logarithms, sums))


@lru_cache(maxsize=32)
def _sums(passes: int) -> tuple[Array, Array]:
    """Logarithms of the rates, and of the sums there; between them a line is within 1 %."""
    later = np.arange(passes - 1, -1, -1)
    return np.log(_RATES), np.log(np.exp(-_RATES[:, None] * later) @ waning_variances(passes))


_PASSES = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 400)
_PASSES_OF_ONE_BATCH = (*_PASSES, 1000, 2000)  # a pass is one step, and a rare class's intercept takes many
_BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 1.9)  # of 1/smoothness: no step of at most 2 expands
# Where every iterate is certified no step has to contract: of 1 over the curvature of zero weights, for rows that are all alike.
_LONG_STEPS = (*_STEPS, 4.0)
_MOST_STEPS = 40_000
_MOST_BATCHES_IN_BLOCKS = 20  # a pass: of smaller batches a block would be read for each of many
# Of cyclic Poisson batches, where they divide the batches of a pass.
_GROUPS = (1, 2, 5, 10, 20, 50)
# Of correlated noise: strategies of more take long to find.
_MOST_CORRELATED = 2000
_MOST_WORK = 1e11  # products of a feature and a weight, with noise at pass ends: minutes
# With noise at pass ends, of shapes whose predicted risk is this near to the least, the one of fewest passes is taken, and of these the
# one of fewest steps. Of long runs, about a minute and more, a tenth of the risk is given for fewer passes: what is predicted to be gained
# in more of them is less sure than the time they take.
_NEAR, _NEAR_LONG = 1.005, 1.1
_LONG_WORK = 1.5e10  # and the most with other noise
# Added to what is predicted of a classifier's run beside a minimiser: what the weakest directions would still have given.
_UNREACHED = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """The shape of a run that the rule chose."""

    passes: int  # P
    size: int  # b, records of a batch
    step_size: float  # eta
    facts: PublicFacts  # the problem, with the loss that is trained on
    risk: float  # predicted
    loss_cost: float  # what of it a loss of bounded slope costs
    averaged: int = 1  # a, of how many last iterates the mean is released; 1: the last itself
    groups: int = 1  # g, of cyclic Poisson batches; 1 of all others


@lru_cache(maxsize=64)
def best_shape(facts: PublicFacts, design: BatchDesign, schedule: NoiseShape, mu: float) -> RunShape:
    r"""The shape with the smallest predicted risk, at $\mu$ of GDP."""
    # Of noise at every step some theorems that count secret batches know no envelopes.
    losses = cut_losses(facts) if schedule == "uniform" and not certifies_all(facts, schedule) else run_losses(facts)
    unreached = _UNREACHED if facts.target_bound is None else 0.0
    shapes = [shape for loss_facts, cost in losses for shape in _shapes(loss_facts, design, schedule, mu, unreached, cost)]
    if schedule != "pass_ends":
        return _nearest(shapes, 1.0)
    best = _nearest(shapes, _NEAR)
    return best if best.passes * facts.records * facts.weights <= _LONG_WORK else _nearest(shapes, _NEAR_LONG)


def _nearest(shapes: list[RunShape], tie: float) -> RunShape:
    """Of those whose predicted risk is within a factor of the least, but for the loss's own cost, the one of fewest passes."""
    best = min(shapes, key=lambda shape: shape.risk)
    enough = best.risk + (tie - 1.0) * (best.risk - best.loss_cost)
    near = [shape for shape in shapes if shape.risk <= enough]
    return min(near, key=lambda shape: (shape.passes, shape.facts.records // shape.size, shape.risk)) if near else shapes[0]


def _shapes(facts: PublicFacts, design: BatchDesign, schedule: NoiseShape, mu: float, unreached: float, cost: float) -> Iterator[RunShape]:
    """Every shape of the grid for one design and schedule, with its predicted risk plus `unreached` and the `cost` of a cut loss."""
    every = certifies_all(facts, schedule)
    # The largest curvature of the mean loss at zero weights, of which no score is above another; of classes less than that elsewhere.
    of_zeros = facts.norm**2 * usual_trace(facts.loss) / facts.loss.outputs
    limit = 1.0 / (min(of_zeros, facts.smoothness) if every else facts.smoothness)
    step_limit = _MOST_CORRELATED if schedule == "correlated" else _MOST_STEPS
    work = facts.records * facts.weights / (_MOST_WORK if schedule == "pass_ends" else _LONG_WORK)
    for batches in (1,) if design == "full" else _BATCHES:
        size = facts.records // batches
        if size == 0 or (facts.in_blocks and batches > _MOST_BATCHES_IN_BLOCKS):
            break
        slots = facts.records // size
        # Independent noise gains nothing from groups.
        groups = sorted({math.gcd(slots, count) for count in _GROUPS}) if design == "cyclic_poisson" else [1]
        of_grid = _PASSES_OF_ONE_BATCH if design == "full" else _PASSES
        for passes in of_grid if facts.passes is None else (facts.passes,):
            if facts.passes is None and passes > 1 and (passes * slots > step_limit or passes * work > 1.0):
                continue
            sizes = [step * limit for step in (_LONG_STEPS if every else _STEPS)]
            # How many last iterates are looked at: 1, a pass, and shares of all steps.
            counts = sorted({1, slots, *(max(passes * slots // share, 1) for share in _SHARES)}) if every else [1]
            for count, averaged in itertools.product(groups, counts):
                settings = {"passes": passes, "size": size, "averaged": averaged, "groups": count}
                predicted = _risks(facts, design, schedule, mu, slots=slots, step_sizes=sizes, **settings)
                for step_size, risk in zip(sizes, predicted, strict=True):
                    yield RunShape(step_size=step_size, facts=facts, risk=risk + unreached + cost, loss_cost=cost, **settings)


def _risks(
    facts: PublicFacts,
    design: BatchDesign,
    schedule: NoiseShape,
    mu: float,
    *,
    passes: int,
    slots: int,
    size: int,
    step_sizes: list[float],
    averaged: int,
    groups: int,
) -> list[float]:
    """Predicted, for each step size."""
    if mu <= 0.0:
        return [math.inf] * len(step_sizes)
    steps, column = passes * slots, np.array(step_sizes)[:, None]
    factor = np.maximum(1.0 - column * curvatures(facts), 0.0) / (1.0 + column * facts.ridge)
    missed = minimiser_missed(facts, facts.ridge)
    touches = require_swap(facts.neighbours) * column * facts.gradient_bound / size
    every = certifies_all(facts, schedule)
    missed = missed + (1.0 - missed) * (start_kept(factor, steps, averaged) if every else factor**steps)
    # Of independent noise at every step, where every iterate is certified.
    composed = touches**2 * (1.0 / math.log1p((mu * slots) ** 2 / (passes * slots)) if design == "poisson" else passes / mu**2)
    if schedule == "correlated":
        apart, of_one = _correlated(design, mu, steps=steps, slots=slots, groups=groups)
        variances = of_one * touches**2 * noise_kept(factor, steps, averaged, slots=apart)
    elif every:
        variances = composed * noise_kept(factor, steps, averaged)
    elif schedule == "pass_ends":
        variances = (touches / mu) ** 2 * waning_kept(factor**slots, passes)
    else:
        drawn = (touches / mu) ** 2 * (slots + passes - 1.0) / slots if design == "cyclic" else composed
        variances = drawn * np.where(factor < 1.0, (1.0 - factor ** (2 * steps)) / np.maximum(1.0 - factor**2, 1e-300), steps)
    return risks(facts, missed, variances).tolist()


def certifies_all(facts: PublicFacts, schedule: NoiseShape) -> bool:
    """Whether a run with that noise is certified for every iterate: what correlated noise hides, it hides of all."""
    return schedule == "correlated" or (schedule == "uniform" and facts.release == "all")


def _correlated(design: BatchDesign, mu: float, *, steps: int, slots: int, groups: int) -> tuple[int, float]:
    r"""Of correlated noise: how many steps two draws of a record are apart, and $\tau^2/(s\,\mathrm{sens}(C))^2$."""
    if design == "cyclic":
        return slots, 1.0 / mu**2
    # Cyclic Poisson: a record's columns do not overlap, so that sens(C)^2, which `noise_kept` counts, is T/g times that of one.
    times = steps / groups
    return groups, 1.0 / (times * math.log1p((mu * slots / groups) ** 2 / times))
