r"""Schedules of the localised solver (descent.py): records, step sizes, radii and clip norms of each phase. The solvers of this folder ask
for one where the caller gives none: from public constants alone, so choosing costs no privacy. n records of d numbers, $\rho$ the zCDP
budget, $r_k$ the bound of the k-th moment of a gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.errors import InputError
from lethe.heavy_tailed.oracles import MOST_CLIP, ClippedMean, PureClippedMean, noise_for, noise_scale, require_rho
from lethe.heavy_tailed.problem import Moments, Problem, clipping_bias


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPhase:
    r"""One phase.

    Args:
        records: $n_i$.
        steps: $T_i$.
        step_size: $\eta_i$.
        strength: $\lambda_i$, with $\lambda_i\eta_i \le 2$.
        radius: $D_i$ of the ball about the phase's start.
        clip_norm: $C_i$.
    """

    records: int
    steps: int
    step_size: float
    strength: float
    radius: float
    clip_norm: float

    def __post_init__(self) -> None:
        for name in ("records", "steps"):
            object.__setattr__(self, name, require_count(name, getattr(self, name)))
        for name in ("step_size", "strength", "radius", "clip_norm"):
            object.__setattr__(self, name, require_positive(name, getattr(self, name)))
        if self.step_size * self.strength > 2.0:
            raise InputError(
                f"step_size = {self.step_size:g} and strength = {self.strength:g}; their product needs to be at most 2.",
                source="the arguments step_size and strength",
                remedy="take smaller steps",
            )

    @property
    def gradients(self) -> int:
        """How many gradients of records it computes on all of its records."""
        return self.records * self.steps

    def noise_variance(self, rho: float) -> float:
        r"""$\sigma_i^2 = \frac{4C_i^2T_i}{2\rho n_i^2}$ of each step."""
        deviation = noise_for(2.0 * self.clip_norm / self.records, require_rho(rho) / self.steps)
        return deviation * deviation


def localised_theory(
    problem: Problem,
    records: int,
    rho: float,
    *,
    distance: float | None = None,
    extra: float = 0.5,
    moments: Sequence[Moments] | None = None,
) -> tuple[LocalPhase, ...]:
    r"""The theorem's phases, with $\epsilon = \sqrt{2\rho}$, $p = 1 + 2q/k$ and $n$ the power of two below the number of records:

    $$n_i = \frac n{2^i},\quad \eta_i = \frac\eta{4^i},\quad \lambda_i = \frac1{\eta_in_i^p},\quad
      D_i = \frac{4\tilde r_k(2^in^q)^{1/k}}{\lambda_i},\quad C_i = \tilde r_{2k}\Big(\frac{\epsilon n_i}{\sqrt{d\ln n}}\Big)^{1/k}$$

    $$\eta = \frac D{n^{p/2}}\min\Big\{\frac1{r_2n^{(p-1)/2}},\ \frac1{\tilde r_kn^{q/k}},\ \frac1{\tilde r_{2k}n^{p/2}}
      \Big(\frac{\epsilon n}{\sqrt{d\ln n}}\Big)^{(k-1)/k}\Big\},\qquad
      T_i = \Big\lceil2n_i^p\ln\max\Big\{e, \frac{\min(D, 2D_i)^2\lambda_in_i^2\epsilon^2}{4dC_i^2\eta_i}\Big\}\Big\rceil$$

    The number of steps is half as large in print, which leaves the root of the contraction that is claimed, and defined through the noise
    that it defines. The paper's further minimum over a term $\eta_A$ never binds in practice and is left out of it here: see
    `localised_bound`, which is computed for the phases at hand. Its rate is in $\tilde r_{2k}$. The finer one, in moments of means of $n_i$
    records, does not follow with $\tilde r_k$ in $D_i$, and does with `moments`: $\tilde r_{k,n_i}$ in $D_i$, $\tilde r_{2k,n_i}$ in $C_i$,
    and in $\eta$ their means weighted by $2^{-i}$.

    Args:
        problem: with moments of order 2k, kind "uniform"; `half` is $\tilde r_k$ and `second` is $r_2$.
        records: n >= 2; what exceeds a power of two is not used.
        rho: $\rho$, finite.
        distance: D; None: the diameter of the domain.
        extra: q; 1/2 as in the paper, 1 for `strongly_convex`, where a phase may fail with probability 1/n only.
        moments: for each phase those of means of its records, $\tilde r_{2k,n_i} = (E\sup_w\frac1{n_i}\sum\|\nabla f\|^{2k})^{1/2k}$,
            between the raw and the uniform ones; None: the problem's, which bound them.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 41 and its Appendix G.2.
    """
    count, d = 2 ** (require_count("records", records, low=2).bit_length() - 1), problem.dimension
    of_phases = _of_phases(problem, moments, count.bit_length() - 1)
    k, high, half, second = _moments(problem)
    if moments is not None:
        high, half = (_weighted([phase[place] for phase in of_phases]) for place in (1, 2))
    scale, reach, q = noise_scale(require_positive("rho", rho)), problem.distance(distance), require_positive("extra", extra)
    if scale > 1e60:
        raise outside("rho", rho, "a number at most 5e119")
    if q > 100.0:
        raise outside("extra", extra, "a number at most 100")
    power = 1.0 + 2.0 * q / k
    privacy = scale * count / math.sqrt(d * math.log(count))
    eta = (
        reach
        / count ** (power / 2.0)
        * min(
            1.0 / (second * count ** ((power - 1.0) / 2.0)),
            1.0 / (half * count ** (q / k)),
            privacy ** ((k - 1.0) / k) / (high * count ** (power / 2.0)),
        )
    )
    phases: list[LocalPhase] = []
    for index, (_, high, half, _) in enumerate(of_phases, 1):
        size = count >> index
        step = eta / 4.0**index
        strength = 1.0 / (step * size**power)
        radius = 4.0 * half * (2.0**index * count**q) ** (1.0 / k) / strength
        clip = high * (scale * size / math.sqrt(d * math.log(count))) ** (1.0 / k)
        ratio = min(reach, 2.0 * radius) ** 2 * strength * (size * scale) ** 2 / (4.0 * d * clip * clip * step)
        steps = math.ceil(2.0 * size**power * math.log(max(ratio, math.e)))
        phases.append(
            LocalPhase(records=size, steps=steps, step_size=step, strength=strength, radius=radius, clip_norm=min(clip, MOST_CLIP))
        )
    return tuple(phases)


def localised_practical(
    problem: Problem, records: int, rho: float, *, distance: float | None = None, most_steps: int = 30
) -> tuple[LocalPhase, ...]:
    r"""Phases that clip at $C = r_2$ and pull as hard as their noise asks for; by the theorem's a point hardly moves at any n of practice.

    `noise_led_phases` with `ClippedMean`, T = `most_steps`. No bound comes with them; the privacy is the same, for the noise follows from
    the steps that are taken.

    Args:
        problem: with moments of order 2 or more, of any kind.
        records: n >= 2.
        rho: $\rho$, finite.
        distance: D; None: the diameter of the domain.
        most_steps: T of each phase.
    """
    clip = problem.known_moments().raw_second(problem.dimension)
    return noise_led_phases(problem, records, ClippedMean(clip_norm=clip, rho=rho), distance=distance, steps=most_steps)


def noise_led_phases(
    problem: Problem, records: int, oracle: ClippedMean | PureClippedMean, *, distance: float | None = None, steps: int = 30, parts: int = 1
) -> tuple[LocalPhase, ...]:
    r"""Phases whose pull follows from the noise of their mean gradients, which are clipped at the oracle's clip norm.

    $$n_i = \Big\lfloor\frac n{2^i}\Big\rfloor,\quad \lambda_1 = \frac{8e}D,\quad \lambda_i = 4^{i-1}\lambda_1,\quad
      \eta_i = \min\Big\{\frac4{\lambda_iT},\ \frac1{\beta + \lambda_i}\Big\},\quad D_i = \min\Big\{D, \frac{2r_2}{\lambda_i}\Big\}$$

    $e^2 = dT^{-1}\sigma^2 + r_2^2/s$ for steps of noise $\sigma$ on $s = \lfloor n_1/J\rfloor$ records: so far from 0 they leave a mean
    gradient, and $e/\lambda_1$ from its minimiser a phase. 8e/D is for starts at most D/8 from the minimiser: measured to do better than
    the worst case's e/D. A $\beta$ that is not known counts as 0.

    Args:
        problem: with moments of order 2 or more, of any kind.
        records: n >= 2 J.
        oracle: states the cost of a phase.
        distance: D; None: the diameter of the domain.
        steps: T of each phase.
        parts: J, into how many equal parts `population_localised` cuts a phase; phases with fewer records are left out.
    """
    count, passes = require_count("records", records, low=2), require_count("steps", steps)
    share, reach, d = require_count("parts", parts, high=count // 2), problem.distance(distance), problem.dimension
    second, size = problem.known_moments().raw_second(d), count // 2 // share
    noise = oracle.shared(passes).release(size, d).noise_std
    pull = 8.0 * math.sqrt(d * noise * noise / passes + second * second / size) / reach
    phases: list[LocalPhase] = []
    for index in range(1, (count // share).bit_length()):
        step = min(4.0 / (pull * passes), 1.0 / ((problem.smoothness or 0.0) + pull))
        radius = min(reach, 2.0 * second / pull)
        clip = oracle.clip_norm
        phases.append(LocalPhase(records=count >> index, steps=passes, step_size=step, strength=pull, radius=radius, clip_norm=clip))
        pull *= 4.0
    return tuple(phases)


def localised_bound(
    problem: Problem,
    schedule: tuple[LocalPhase, ...],
    rho: float,
    *,
    lipschitz: float,
    distance: float | None = None,
    moments: Sequence[Moments] | None = None,
) -> float:
    r"""A bound of the expected excess risk of `localised`.

    $$\sum_i\Big[\frac{2r_2^2}{\lambda_in_i} + \frac{\lambda_i}2E_{i-1}\Big] + L\sqrt{E_l} + LD\sum_i(2t_i)^{-k},\qquad E_0 = D^2,\quad
      t_i = \frac{\lambda_iD_i}{4\tilde r_k}$$

    The last sum pays for phases whose solution lies outside of their ball. $E_i$ bounds the squared distance of the phase's last iterate
    from its solution, see `descent_distance`. Large at moderate n: 28 at n = 1024 for a problem whose risk is at most 6; it falls at the
    proved rate.

    $L$ is the Lipschitz constant of F; `moments` as of `localised_theory`. In loss units; may be infinity.
    """
    require_rho(rho)
    d, reach, slope = problem.dimension, problem.distance(distance), require_positive("lipschitz", lipschitz)
    second = _moments(problem)[3]
    errors, failures = [reach * reach], 0.0
    for phase, (k, high, half, _) in zip(schedule, _of_phases(problem, moments, len(schedule)), strict=True):
        # Of the empirical moments: the mean of their squares is at most the bound of twice the order.
        bias = clipping_bias(k, high, phase.clip_norm)
        noise = d * phase.noise_variance(rho)
        near = replace(phase, radius=min(phase.radius, reach))
        errors.append(descent_distance(near, half, noise, bias, width=min(reach, 2.0 * phase.radius)))
        failures += (phase.strength * phase.radius / (2.0 * half)) ** -k
    total = sum(2.0 * second**2 / (phase.strength * phase.records) for phase in schedule)
    total += sum(phase.strength / 2.0 * before for phase, (before, _) in zip(schedule, pairwise(errors), strict=True))
    return total + slope * math.sqrt(errors[-1]) + slope * reach * failures


def descent_distance(phase: LocalPhase, second: float, noise: float, bias: float, *, width: float) -> float:
    r"""$E\|w_T - \hat w\|^2$ of `regularised_descent` from the minimiser $\hat w$ of its regularised empirical loss.

    $$e^{-xT}D_i^2 + \frac{\eta^2(2r^2 + 2\lambda^2w^2 + d\sigma^2) + 2\eta B^2/\lambda}{\min(x, 1)},\qquad x = \tfrac32\lambda\eta$$

    Proof: with $\Delta = \|w_t - \hat w\|$, strong monotonicity and $2\eta B\Delta \le \frac12\eta\lambda\Delta^2 + 2\eta B^2/\lambda$ give
    $E\Delta_{t+1}^2 \le (1 - x)\Delta_t^2 + \eta^2E\|\tilde g + \lambda(w - w_0)\|^2 + 2\eta B^2/\lambda$. The paper's Lemma 14 is
    $e^{-\lambda\eta T/2}D_i^2 + \frac{8\eta}\lambda(r^2 + \lambda^2w^2 + d\sigma^2) + \frac{20B^2}{\lambda^2}$.

    `second` is r, the root mean square of the subgradients over the domain; `noise` $d\sigma^2$; B the bias on the records at hand; w the
    diameter of the set that is projected on; the phase's radius $D_i$ bounds $\|w_0 - \hat w\|$.
    """
    step, pull = phase.step_size, phase.strength
    rate = 1.5 * pull * step
    each = step * step * (2.0 * second**2 + 2.0 * (pull * width) ** 2 + noise) + 2.0 * step * bias * bias / pull
    return math.exp(-rate * phase.steps) * phase.radius**2 + each / min(rate, 1.0)


def _weighted(values: Sequence[float]) -> float:
    r"""$\big(\sum_i2^{-i}v_i^2/\sum_i2^{-i}\big)^{1/2}$."""
    return math.sqrt(math.fsum(0.5**i * value * value for i, value in enumerate(values, 1)) / (1.0 - 0.5 ** len(values)))


def _of_phases(problem: Problem, moments: Sequence[Moments] | None, count: int) -> list[tuple[float, float, float, float]]:
    """What `_moments` says of each phase."""
    if moments is None:
        return [_moments(problem)] * count
    if len(moments) != count or {one.order for one in moments} != {problem.known_moments().order}:
        raise outside("moments", f"{len(moments)} of orders {sorted({one.order for one in moments})}", f"{count} of the problem's order")
    return [_moments(replace(problem, moments=one)) for one in moments]


def _moments(problem: Problem) -> tuple[float, float, float, float]:
    """k, and the bounds of order 2k, k and 2."""
    moments = problem.known_moments()
    if moments.kind != "uniform" or moments.order < 4.0:
        raise InputError(
            f"moments of kind {moments.kind} and order {moments.order:g}; the localised solver needs uniform ones of order 2k >= 4.",
            source="the problem's moments",
            remedy="bound the moment of the largest subgradient norm over the domain",
        )
    half = moments.bound if moments.half is None else moments.half
    return moments.order / 2.0, moments.bound, half, moments.raw_second(problem.dimension)
