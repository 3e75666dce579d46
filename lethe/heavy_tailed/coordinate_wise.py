r"""Mean oracles coordinate by coordinate: the smoothed truncation of Wang et al., and settings of `CoordinateMedian` after Kamath et al.

Kept to compare: only experiments and tests call it.

With `multi_pass` on all records they are the two solvers for heavy tails that the paper of Lowy and Razaviyayn improves on. They are about
moments of single coordinates, for which an even share $r_k/\sqrt d$ of the problem's is taken.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import erf, ndtr

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up
from lethe.heavy_tailed.multi_pass import PRACTICAL_PASSES
from lethe.heavy_tailed.oracles import CoordinateMedian, MeanOracle, finite_rows, noise_for, require_clip, require_rho
from lethe.heavy_tailed.problem import Problem, clipping_bias
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.solution import Release, gaussian_release

_ROOT, _TOP = math.sqrt(2.0), 2.0 * math.sqrt(2.0) / 3.0
_FAR = 1e3  # scales: from there on the influence is its limit, within a millionth


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothedMean(MeanOracle):
    r"""$\tilde\nu_j = \frac as\sum_i\psi(z_{ij}/a) + N(0, \sigma^2)$ with $\psi(u) = E\,\phi(u + u\xi/\sqrt\beta)$, $\xi$ normal:
    a soft truncation $\phi$ of each coordinate, smoothed by multiplied noise that is integrated out.

    $$\phi(v) = v - \tfrac{v^3}6\ (|v| \le \sqrt2),\quad \pm\tfrac{2\sqrt2}3\ \text{beyond},\qquad
      \sigma = \frac{\Delta}{\sqrt{2\rho}},\quad \Delta = \frac{2a\sqrt d}s\cdot\frac{2\sqrt2}3\,\mathrm{erf}\sqrt{\beta/2}$$

    Formal guarantee: $\sqrt{2\rho}$-GDP for replacing one of the s records.
    Proof: $\phi$ is odd and does not decrease, so with the normal density p of $1 + \xi/\sqrt\beta$ at v and -v, $\psi(u) =
    \int_0^\infty\phi(uv)(p(v) - p(-v))\,dv$ and $p(v) > p(-v)$ for $v > 0$: $\psi$ does not decrease either. It lies within its limits
    $\pm\frac{2\sqrt2}3(1 - 2\Phi(-\sqrt\beta))$, and what is computed is cut there. A replaced record moves every coordinate by at most 2a
    times that over s, and the Euclidean norm by $\sqrt d$ times as much: attained. A noise for each coordinate's own move would leave that
    root out.

    Bias of a coordinate: $|a\psi(z/a) - z| \le \frac{3}{8\sqrt2}(1 + \frac1\beta)\frac{z^2}a$, for $|\phi(v) - v| \le \frac3{8\sqrt2}v^2$
    and $E(1 + \xi/\sqrt\beta)^2 = 1 + 1/\beta$.

    Built from the paper's description; its text was not at hand, and none of its bounds on the risk is claimed: they need iterates
    independent of the records they are computed on, or an argument that is uniform in w.

    Args:
        scale: $a > 0$, at most 1e150, in loss per parameter unit.
        precision: $\beta$ of the smoothing noise, in [1, 1e6].
        rho: $\rho > 0$ of all that one record takes part in; infinity: no noise, not private.
    Reference: after Wang, Xiao, Devadas & Xu 2020, arXiv:2010.11082; the estimator: Holland 2019, arXiv:1810.06207.
    """

    scale: float
    precision: float
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", require_clip("scale", self.scale))
        object.__setattr__(self, "precision", require_positive("precision", self.precision))
        if not 1.0 <= self.precision <= 1e6:
            raise outside("precision", self.precision, "a number in [1, 1e6]")
        object.__setattr__(self, "rho", require_rho(self.rho))

    @property
    def limit(self) -> float:
        r"""$\frac{2\sqrt2}3\,\mathrm{erf}\sqrt{\beta/2}$, the supremum of $\psi$."""
        return _TOP * float(erf(math.sqrt(0.5 * self.precision)))

    def influences(self, values: Array) -> Array:
        r"""$\psi$ of each number, with the moments of a normal law cut at $\pm\sqrt2$; cut at its limits."""
        centres = np.clip(np.abs(values), 1e-150, _FAR)
        width = centres / math.sqrt(self.precision)
        low, high = (-_ROOT - centres) / width, (_ROOT - centres) / width
        below, above = ndtr(low), ndtr(-high)
        inside, density_low, density_high = (
            1.0 - below - above,
            *(np.exp(-0.5 * end * end) / math.sqrt(2.0 * math.pi) for end in (low, high)),
        )
        first = density_low - density_high
        second = inside + low * density_low - high * density_high
        third = 2.0 * first + low * low * density_low - high * high * density_high
        cubes = centres**3 * inside + 3.0 * centres**2 * width * first + 3.0 * centres * width**2 * second + width**3 * third
        smooth = centres * inside + width * first - cubes / 6.0 + _TOP * (above - below)
        return np.sign(values) * np.clip(smooth, 0.0, self.limit)

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """The mean of the smoothed rows, shape (s, d), with noise in all d coordinates; shape (d,)."""
        with np.errstate(over="ignore"):
            units = finite_rows(rows) / self.scale
        centre = self.scale * self.influences(units).mean(axis=0)
        return centre + self.release(*rows.shape).noise_std * noise_generator(generator).standard_normal(len(centre))

    def release(self, size: int, dimension: int) -> Release:
        """What one mean of `size` rows of d numbers costs, and its noise."""
        root = math.sqrt(require_count("dimension", dimension))
        sensitivity = round_up(2.0 * self.scale * self.limit * root / require_count("size", size), 4e-15)
        return gaussian_release(sensitivity, noise_for(sensitivity, self.rho))

    def shared(self, touches: int) -> "SmoothedMean":
        r"""The oracle with $\rho$ split evenly over so many uses of a record."""
        return replace(self, rho=self.rho / require_count("touches", touches))


def smoothed_oracle(problem: Problem, records: int, rho: float, *, passes: int = PRACTICAL_PASSES, failure: float = 0.05) -> SmoothedMean:
    r"""`SmoothedMean` for `multi_pass` on all records, after Wang et al.

    $\beta = \ln(d/\zeta)$, at least 1, and the scale a at which the bound of a coordinate's bias,
    $\frac3{8\sqrt2}(1 + \frac1\beta)\frac{r_2^2}{da}$, is the noise of one of the E passes; public numbers only.

    Args:
        problem: with moments.
        records: n.
        rho: $\rho$, finite.
        passes: E.
        failure: $\zeta$ in (0, 1).
    """
    d, chance = problem.dimension, _chance(failure)
    oracle = SmoothedMean(scale=1.0, precision=max(math.log(d / chance), 1.0), rho=require_positive("rho", rho))
    noise = oracle.shared(passes).release(records, d).noise_std
    bias = 0.375 / _ROOT * (1.0 + 1.0 / oracle.precision) * problem.known_moments().raw_second(d) ** 2 / d
    return replace(oracle, scale=math.sqrt(bias / noise))


def median_oracle(problem: Problem, records: int, rho: float, *, passes: int = PRACTICAL_PASSES, failure: float = 0.05) -> CoordinateMedian:
    r"""`CoordinateMedian` for `multi_pass` on all records, after Kamath et al.

    About $m = \ln(d/\zeta)/1.61$ groups, an odd number, and the threshold at which the bound of a coordinate's bias, $c_kg^k/\tau^{k-1}$
    with $g = r_k/\sqrt d$, is the noise of one of the E passes.

    The algorithm is projected descent on all records with this oracle, $\rho/E$ a step; the paper sets threshold and groups up to
    constants, which are these here. Its bound on the risk is not claimed. Its other algorithm takes the estimator of `SmoothedMean`.

    Args:
        problem: with moments.
        records: n, at least m.
        rho, passes, failure: as `smoothed_oracle`.
    Reference: after Kamath, Liu & Zhang 2022, arXiv:2106.01336.
    """
    d, moments = problem.dimension, problem.known_moments()
    groups = 2 * math.floor(0.5 * math.log(d / _chance(failure)) / 1.61) + 1
    oracle = CoordinateMedian(threshold=1.0, groups=groups, rho=require_positive("rho", rho))
    noise, even = oracle.shared(passes).release(records, d).noise_std, moments.raw(d) / math.sqrt(d)
    return replace(oracle, threshold=(clipping_bias(moments.order, even, 1.0) / noise) ** (1.0 / moments.order))


def _chance(failure: object) -> float:
    chance = require_positive("failure", failure)
    if chance >= 1.0:
        raise outside("failure", failure, "a number above 0 and below 1")
    return chance
