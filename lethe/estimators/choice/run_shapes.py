r"""Runs for a public problem: batches, passes and steps by a rule, and the noise that the rule expects them to need.

For each design the rule takes, of a small grid, the passes, the batches a pass and the step size with the smallest predicted risk
(`lethe.estimators.choice.risk`). With $s = (2\text{ or }1)\,\eta G/b$ for one touch it expects the noise

- at pass ends: $\tau_p^2 = v_ps^2/\mu^2$, once a pass, waning (`lethe.estimators.choice.averaged`);
- cyclic, at every step: $\tau^2 = s^2(1 + (P-1)/\ell)/\mu^2$;
- full: $\tau^2 = Ps^2/\mu^2$; Poisson: $\mu = \frac1\ell\sqrt{T(e^{s^2/\tau^2} - 1)}$;
- correlated: $\tau^2 = s^2\,\mathrm{sens}(C)^2/\mu^2$ drawn at every step, C being the square root of the prefix sums, cut to a pass,
- correlated, cyclic Poisson of g groups: the same C, cut to g; $\mu = \frac g\ell\sqrt{\frac Tg(e^{s^2\|C_{\cdot 1}\|^2/\tau^2} - 1)}$,

the values of the last-iterate theorem, and of the central limit of composition, without contraction. Where every iterate is certified,
cyclic batches need $\tau^2 = Ps^2/\mu^2$, a step may be longer than is proved to contract, and of the mean of some last iterates it takes
the one that is best. The certificate decides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lethe.estimators.choice.averaged import counts, noise_kept, start_kept, waning_kept
from lethe.estimators.choice.risk import curvatures, cut_losses, minimiser_missed, risks, run_losses
from lethe.estimators.inputs.facts import BatchDesign, NoiseShape, PublicFacts

_PASSES = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 400)
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
    averaged: int = 1  # a, of how many last iterates the mean is released; 1: the last itself
    groups: int = 1  # g, of cyclic Poisson batches; 1 of all others


@lru_cache(maxsize=64)
def best_shape(facts: PublicFacts, design: BatchDesign, schedule: NoiseShape, mu: float) -> RunShape:
    r"""The shape with the smallest predicted risk.

    Args:
        facts: the problem.
        design: of the batches, not "auto".
        schedule: of the noise, not "auto".
        mu: what may be spent, as $\mu$ of GDP.
    """
    # Of noise at every step some theorems that count secret batches know no envelopes.
    losses = cut_losses(facts) if schedule == "uniform" and not certifies_all(facts, schedule) else run_losses(facts)
    unreached = _UNREACHED if facts.target_bound is None else 0.0
    shapes = [shape for one, cost in losses for shape in _shapes(one, design, schedule, mu, cost + unreached)]
    if schedule != "pass_ends":
        return _nearest(shapes, 1.0)
    best = _nearest(shapes, _NEAR)
    return best if best.passes * facts.records * facts.weights <= _LONG_WORK else _nearest(shapes, _NEAR_LONG)


def _nearest(shapes: list[RunShape], tie: float) -> RunShape:
    """Of those whose predicted risk is within a factor of the least the one of fewest passes."""
    enough = tie * min(shape.risk for shape in shapes)
    near = [shape for shape in shapes if shape.risk <= enough]
    return min(near, key=lambda shape: (shape.passes, shape.facts.records // shape.size, shape.risk)) if near else shapes[0]


def _shapes(facts: PublicFacts, design: BatchDesign, schedule: NoiseShape, mu: float, cost: float) -> Iterator[RunShape]:
    every = certifies_all(facts, schedule)
    limit = 1.0 / (min(_curvature_of_zeros(facts), facts.smoothness) if every else facts.smoothness)
    most = _MOST_CORRELATED if schedule == "correlated" else _MOST_STEPS
    work = facts.records * facts.weights / (_MOST_WORK if schedule == "pass_ends" else _LONG_WORK)
    for batches in (1,) if design == "full" else _BATCHES:
        size = facts.records // batches
        if size == 0 or (facts.in_blocks and batches > _MOST_BATCHES_IN_BLOCKS):
            break
        slots = facts.records // size
        # Independent noise gains nothing from groups.
        groups = sorted({math.gcd(slots, count) for count in _GROUPS}) if design == "cyclic_poisson" else [1]
        for passes in _PASSES if facts.passes is None else (facts.passes,):
            if facts.passes is None and passes > 1 and (passes * slots > most or passes * work > 1.0):
                continue
            sizes = [step * limit for step in (_LONG_STEPS if every else _STEPS)]
            for count, averaged in itertools.product(groups, counts(slots, passes * slots) if every else (1,)):
                given = {"passes": passes, "size": size, "averaged": averaged, "groups": count}
                predicted = _risks(facts, design, schedule, mu, slots=slots, step_sizes=sizes, **given)
                for step_size, risk in zip(sizes, predicted, strict=True):
                    yield RunShape(step_size=step_size, facts=facts, risk=risk + cost, **given)


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
    touches = facts.swap * column * facts.gradient_bound / size
    every = certifies_all(facts, schedule)
    missed = missed + (1.0 - missed) * (start_kept(factor, steps, averaged) if every else factor**steps)
    composed = touches**2 * _composed_variance(design, mu, passes=passes, slots=slots)
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


def _curvature_of_zeros(facts: PublicFacts) -> float:
    """The largest curvature of the mean loss at zero weights, of which no score is above another; of classes less than that elsewhere."""
    return facts.norm**2 * facts.loss.curvature_trace / facts.loss.outputs


def _correlated(design: BatchDesign, mu: float, *, steps: int, slots: int, groups: int) -> tuple[int, float]:
    r"""Of correlated noise: how many steps two draws of a record are apart, and $\tau^2/(s\,\mathrm{sens}(C))^2$."""
    if design == "cyclic":
        return slots, 1.0 / mu**2
    # Cyclic Poisson: a record's columns do not overlap, so that sens(C)^2, which `noise_kept` counts, is T/g times that of one.
    times = steps / groups
    return groups, 1.0 / (times * math.log1p((mu * slots / groups) ** 2 / times))


def _composed_variance(design: BatchDesign, mu: float, *, passes: int, slots: int) -> float:
    r"""$\tau^2/s^2$ of independent noise at every step, where every iterate is certified."""
    return 1.0 / math.log1p((mu * slots) ** 2 / (passes * slots)) if design == "poisson" else passes / mu**2
