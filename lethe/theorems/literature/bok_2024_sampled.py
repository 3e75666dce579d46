r"""Bok, Su and Altschuler 2024: the last iterate of noisy SGD, with a fresh uniform batch of fixed size at each step.

$C_p(G(\mu))$ is their name of a Gaussian mechanism of $\mu$ whose record is in the batch with chance p; a window is the last R steps, c the
contraction of one. Kept to compare: `lethe.compare` shows it beside Lethe's own bounds, and `certify` tries it only if asked by name.
Symbols as in `bok_2024`: L is the difference of two gradients, b the batch size, $\sigma$ the noise.
"""

import math
from typing import ClassVar

import numpy as np
from scipy import special

from lethe.calculus.guarantees import Guarantee, NotPrivate, Tightest
from lethe.calculus.rounding import round_up
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.calculus.sampled.renyi import ORDERS, renyi_values
from lethe.certificates.findings import Finding
from lethe.certificates.parts import Citation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.theorems.base import Bound, Theorem
from lethe.theorems.literature.bok_2024 import citation, contraction, shared_hypotheses, step_constant
from lethe.theorems.requirements import bounded_domain, design, secrecy

# Shares of the noise variance that hide the draw; the paper prints one half, and 1:9 is in its script.
_SHARES = (0.5, 0.9, 0.1, 0.25, 0.35, 0.65, 0.75, 0.85, 0.95, 0.97, 0.985, 0.993, 0.997, 0.999)
_GROWTH = 1.08
# The windows and shares best at these deltas by Renyi divergences, which see the tails, and best by the central limit theorem, which
# sees the bulk, are the ones whose privacy losses are composed.
_SETTLED_AT = (1e-5, 1e-9, 1e-14)
# Less relative noise than this is none.
_MOST_TOUCH = 1e50
# And more noise than this counts as this.
_LEAST_TOUCH = 1e-90


def _batch_touch(run: Run) -> float:
    r"""$L/(b\sigma)$: how far apart two batches that differ in one record move the iterate, relative to the noise.

    A batch without the record holds another one in its place, so L is twice the gradient bound under zero_out too.
    """
    noise = float(run.record_noise[0])
    return max(2.0 / noise, _LEAST_TOUCH) if noise > 0.0 else math.inf


def sgd_composition(probability: float, steps: int, touch: float) -> Guarantee:
    r"""All iterates: $C_p(G(L/(b\sigma)))^{\otimes T}$, by privacy loss distributions.

    $p = b/n$; the touch is $L/(b\sigma) > 0$. Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, Definition E.1 for $C_p$.
    """
    return _composed(probability, ((touch, steps),), 0.0)


def sgd_window(probability: float, contraction: float, steps: int, window: int, share: float, touch: float) -> Guarantee:
    r"""Strongly convex losses, the last R steps: what came before is $c^R$ smaller at the end, and hidden in the last noise.

    $$G\Big(\frac{2L}{b\sigma\sqrt{1-\beta}}\cdot\frac{c^R - c^T}{1-c}\Big) \otimes C_p\Big(G\Big(\frac{2L}{b\sigma\sqrt\beta}\Big)\Big)
      \otimes C_p\Big(G\Big(\frac{2L}{b\sigma}\Big)\Big)^{\otimes(R-1)}$$

    Printed for $\beta = 1/2$, with $R = T - \tau + 1$; the limit at c = 1 has $(c^R - c^T)/(1-c) = T - R$. The share $0 < \beta < 1$ of the
    last noise's variance hides the draw; $1 \le R \le T$, $0 \le c \le 1$; probability and touch are as in `sgd_composition`. Reference:
    Bok, Su, Altschuler 2024, arXiv:2403.00278 (statement reconstructed, and any split), Lemma C.12.
    """
    shift = _shift(contraction, steps, window, touch) / math.sqrt(1.0 - share)
    return _composed(probability, ((2.0 * touch / math.sqrt(share), 1), (2.0 * touch, window - 1)), shift)


def sgd_domain_window(probability: float, diameter: float, window: int, share: float, touch: float) -> Guarantee:
    r"""Convex losses on a domain of diameter D, the last R steps.

    $$G\Big(\frac{D}{\eta\sigma\sqrt{(1-\beta)R}}\Big) \otimes C_p\Big(G\Big(\frac{2L}{b\sigma\sqrt\beta}\Big)\Big)^{\otimes R}$$

    The diameter is $D/(\eta\sigma)$, in units of one step's noise; the share $0 < \beta < 1$ of every noise's variance hides the draw, 1/2
    is printed; all else is as in `sgd_window`. Reference: Bok, Su, Altschuler 2024, arXiv:2403.00278, closed form of the authors' code, and
    any split; Lemma C.12.
    """
    return _composed(probability, ((2.0 * touch / math.sqrt(share), window),), diameter / math.sqrt((1.0 - share) * window))


def _composed(probability: float, touches: tuple[tuple[float, int], ...], shift: float) -> Guarantee:
    """C_p(G(m)) as often as said, for each m, and one G(shift), rounded outward."""
    used = [(touch, count) for touch, count in touches if count > 0]
    if shift == math.inf or max(touch for touch, _ in used) > _MOST_TOUCH:
        return NotPrivate()
    return SampledGaussian(
        sampling_probability=probability,
        noise=tuple(2.0 / (touch * (1.0 + 1e-14)) for touch, _ in used),
        counts=tuple(count for _, count in used),
        relation="replace_one",
        design="without_replacement",
        gaussian_mu=round_up(shift, 1e-13),
    )


def _shift(contraction: float, steps: int, window: int, touch: float) -> float:
    """By how much what came before the window still moves the last iterate, in units of the noise."""
    before = steps - window
    if contraction == 0.0 or before == 0:
        return 0.0
    rate = math.log(contraction)
    # (c^R - c^T) / (1 - c)
    travelled = contraction**window * (math.expm1(before * rate) / math.expm1(rate) if rate < 0.0 else before)
    # Underflowed is not none.
    return max(2.0 * touch * travelled, 1e-300)


def _windows(steps: int) -> Array:
    """The window lengths that are tried, of shape (W,)."""
    lengths, length = [steps], 1
    while length < steps:
        lengths.append(length)
        length = max(length + 1, int(length * _GROWTH))
    return np.array(sorted(lengths), dtype=np.float64)


def _renyi(probability: float, touches: Array) -> Array:
    """Rényi divergences of C_p(G(m)), shape (touches, orders)."""
    return renyi_values(probability, 2.0 / touches, "replace_one", "without_replacement")


def _limit(probability: float, touches: Array) -> Array:
    """mu^2 of C_p(G(m)) by the central limit theorem, or without sampling if that is less: to choose by, not a bound."""
    small = np.minimum(touches, 26.0)
    spread = np.exp(small * small) * special.ndtr(1.5 * small) + 3.0 * special.ndtr(-0.5 * small) - 2.0
    return np.minimum(touches * touches, 2.0 * probability**2 * spread)


def _most_promising(curves: Array, limits: Array) -> list[tuple[int, int]]:
    """(window, share) where the bound is likely to be best; `curves` has shape (windows, shares, orders), `limits` (windows, shares)."""
    orders = np.array(ORDERS)
    best = [np.unravel_index(int(np.argmin(limits)), limits.shape)]
    for delta in _SETTLED_AT:
        epsilons = curves + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
        best.append(np.unravel_index(int(np.argmin(epsilons)), epsilons.shape)[:2])
    return list(dict.fromkeys((int(window), int(share)) for window, share in best))


def _hypotheses(run: Run) -> tuple[Finding, ...]:
    """A fresh batch of fixed size at each step, and the shared hypotheses."""
    drawn = design(run, ("without_replacement",), f"{run.batch_size} of {run.records} records, uniform and fresh at each step")
    return shared_hypotheses(run, (drawn, secrecy(run)) if run.batches.secret else (drawn,))


class Bok2024SGD(Theorem):
    r"""Noisy stochastic gradient descent for strongly convex losses: the best `sgd_window`, or `sgd_composition`.

    Computed through privacy loss distributions, not by the central limit theorem that the paper plots. In a window the paper counts L
    twice, so windows pay only in long runs. R and $\beta$ are chosen by Rényi divergences and by that limit. For convex losses it is the
    limit at c = 1, which is composition in the end.
    """

    name: ClassVar[str] = "bok-2024-sgd"
    statement: ClassVar[str] = "Shifted interpolation for batches drawn without replacement and strongly convex losses, best window."
    formula: ClassVar[str] = (
        r"f = G\left(\frac{2L}{b\sigma\sqrt{1-\beta}}\cdot\frac{c^R - c^T}{1-c}\right) \otimes C_p(G(\tfrac{2L}{b\sigma\sqrt\beta}))"
        r" \otimes C_p(G(\tfrac{2L}{b\sigma}))^{\otimes(R-1)} \text{ or } C_p(G(\tfrac{L}{b\sigma}))^{\otimes T}"
    )
    needs: ClassVar[str] = "batches without replacement, secret, convex smooth losses, no clipping, step size at most 2/M, constant noise"
    citations: ClassVar[tuple[Citation, ...]] = citation(
        "Definition E.1 and Lemma C.12; the strongly convex bound on NoisySGD is a statement reconstructed"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return _hypotheses(run)

    def _bound(self, run: Run) -> Bound:
        probability, touch, steps, c = run.batch_size / run.records, _batch_touch(run), run.total_steps, contraction(run)
        parts = [sgd_composition(probability, steps, touch)]
        # Without contraction what came before a window costs more than composition of it.
        if c < 1.0 and touch <= _MOST_TOUCH:
            windows, shares = _windows(steps), np.array(_SHARES)
            shifts = np.array([_shift(c, steps, int(window), touch) for window in windows])
            whole, split = _renyi(probability, np.array([2.0 * touch])), _renyi(probability, 2.0 * touch / np.sqrt(shares))
            with np.errstate(over="ignore"):
                hidden = np.multiply.outer(0.5 * np.square(shifts)[:, None] / (1.0 - shares), np.array(ORDERS))
            repeated = np.where(windows[:, None] <= 1.0, 0.0, whole * np.maximum(windows - 1.0, 1.0)[:, None])
            curves = repeated[:, None] + split + hidden
            limits = (windows[:, None] - 1.0) * _limit(probability, np.array([2.0 * touch]))
            limits = limits + _limit(probability, 2.0 * touch / np.sqrt(shares)) + np.square(shifts)[:, None] / (1.0 - shares)
            settled = _most_promising(curves, limits)
            parts += [sgd_window(probability, c, steps, int(windows[i]), _SHARES[j], touch) for i, j in settled]
        return Bound(guarantee=Tightest(tuple(parts)), lipschitz=step_constant(run))


class Bok2024SGDDomain(Theorem):
    r"""Noisy stochastic gradient descent for convex losses on a domain of diameter D: the best `sgd_domain_window`, or composition.

    Computed through privacy loss distributions, not by the central limit theorem that the paper plots. R and $\beta$ are chosen by Rényi
    divergences and by that limit.
    """

    name: ClassVar[str] = "bok-2024-sgd-domain"
    statement: ClassVar[str] = "Shifted interpolation for batches drawn without replacement and convex losses on a bounded domain."
    formula: ClassVar[str] = (
        r"f = G\left(\frac{D}{\eta\sigma\sqrt{(1-\beta)R}}\right) \otimes C_p(G(\tfrac{2L}{b\sigma\sqrt\beta}))^{\otimes R}"
        r" \text{ or } C_p(G(\tfrac{L}{b\sigma}))^{\otimes T}"
    )
    needs: ClassVar[str] = (
        "batches without replacement, secret, convex smooth losses, a bounded domain, no clipping, step size at most 2/M, constant noise"
    )
    citations: ClassVar[tuple[Citation, ...]] = citation(
        "Definition E.1 and Lemma C.12; convex NoisySGD on a bounded domain as in the authors' code"
    )

    def _examine(self, run: Run) -> tuple[Finding, ...]:
        return (*_hypotheses(run), bounded_domain(run))

    def _bound(self, run: Run) -> Bound:
        probability, touch, steps = run.batch_size / run.records, _batch_touch(run), run.total_steps
        diameter = run.diameter / float(run.noise_stds[0])
        parts = [sgd_composition(probability, steps, touch)]
        if touch <= _MOST_TOUCH:
            windows, shares = _windows(steps), np.array(_SHARES)
            with np.errstate(over="ignore"):
                squares = np.square(diameter / np.sqrt(windows))[:, None] / (1.0 - shares)
                curves = np.multiply.outer(windows, _renyi(probability, 2.0 * touch / np.sqrt(shares)))
                curves += np.multiply.outer(0.5 * squares, np.array(ORDERS))
            limits = squares + np.multiply.outer(windows, _limit(probability, 2.0 * touch / np.sqrt(shares)))
            settled = _most_promising(curves, limits)
            parts += [sgd_domain_window(probability, diameter, int(windows[i]), _SHARES[j], touch) for i, j in settled]
        return Bound(guarantee=Tightest(tuple(parts)), lipschitz=step_constant(run))
