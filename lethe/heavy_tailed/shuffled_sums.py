r"""A sum of scalars in the shuffle model: each user sends bits, a shuffler mixes them, the analyser counts ones.

The oracles of shuffled_oracles.py use one protocol for each coordinate. s users have values in $[0, \tau]$, each sends g bits for its value
and b random bits that are 1 with probability p; $\hat z_i$ is the rounded value of user i.

What the analyser sees is the number of ones, $\sum_i\hat z_i + \mathrm{Bin}(bs, p)$, whatever the order of the bits: binomial noise to
which every user contributes a share, so that no one need be trusted with the values.

Reference: Cheu, Joseph, Mao, Peng 2021, arXiv:2106.09805, Section 3; Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 14.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.calculus.large_delta import open_delta
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import CalibrationError, InputError
from lethe.heavy_tailed.sets import Array

Bits = NDArray[np.bool_]

# Of betainc, relative; measured below 1e-11 against exact sums up to 10^5 trials.
_MARGIN = 1e-9
_MOST_TRIALS = 10**8
_MOST_SHIFT = 10**5


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarProtocol:
    r"""The public constants of the protocol for s values in $[0, \tau]$.

    Args:
        users: s.
        range: $\tau > 0$.
        levels: g >= 1: a value is rounded at random to a multiple of $\tau/g$, without bias.
        bits: b >= 1: coins that a user tosses for the noise.
        probability: p in (0, 1/2], of a one.
    """

    users: int
    range: float
    levels: int
    bits: int
    probability: float

    def __post_init__(self) -> None:
        for name in ("users", "levels", "bits"):
            object.__setattr__(self, name, require_count(name, getattr(self, name)))
        object.__setattr__(self, "range", require_positive("range", self.range))
        if not 0.0 < require_positive("probability", self.probability) <= 0.5:
            raise outside("probability", self.probability, "a number above 0 and at most 1/2")
        if self.users * self.bits >= 2**62:
            raise outside("bits", self.bits, f"fewer than 2^62 coins for the {self.users} users together")

    @property
    def noise_variance(self) -> float:
        r"""$(\tau/g)^2\,b s p(1-p)$, of the sum."""
        unit = self.range / self.levels
        return unit * unit * self.users * self.bits * self.probability * (1.0 - self.probability)


def local_messages(value: float, protocol: ScalarProtocol, generator: np.random.Generator) -> Bits:
    r"""The local randomiser: the g + b bits of one user.

    $\hat z + \mathrm{Bin}(b, p)$ of them are ones, with $\hat z$ the randomly rounded $zg/\tau$.

    A value outside of $[0, \tau]$ counts as the nearer end; `generator` is the user's own randomness.
    """
    scaled, source = float(_scaled(np.array([value]), protocol)[0]), noise_generator(generator)
    below = math.floor(scaled)
    ones = below + int(source.random() < scaled - below) + int(source.binomial(protocol.bits, protocol.probability))
    return np.arange(protocol.levels + protocol.bits) < ones


def shuffled(messages: Bits, generator: np.random.Generator) -> Bits:
    """The shuffler: all bits of all users, shape (s, g + b), in one random order."""
    return noise_generator(generator).permutation(messages.reshape(-1))


def analyse(bits: Bits | int, protocol: ScalarProtocol) -> float:
    r"""The analyser: $\frac\tau g(\#\text{ones} - pbs)$, an unbiased estimate, from the bits or how many of them are ones."""
    ones = bits if isinstance(bits, int) else int(np.count_nonzero(bits))
    if not 0 <= ones <= protocol.users * (protocol.levels + protocol.bits):
        raise outside(
            "bits", bits, f"at most {protocol.users * (protocol.levels + protocol.bits)} bits that are ones, and no fewer than none"
        )
    return protocol.range / protocol.levels * (ones - protocol.probability * protocol.bits * protocol.users)


def simulated_ones(values: Array, protocol: ScalarProtocol, generator: np.random.Generator) -> int:
    """The number of ones that the shuffler hands on, drawn directly: the law of the protocol without its bits. `values` has shape (s,)."""
    if values.shape != (protocol.users,):
        raise InputError(
            f"values of shape {values.shape}; the protocol is for {protocol.users} users.",
            source="the argument values",
            remedy="build the protocol for as many users as there are values",
        )
    scaled, source = _scaled(values, protocol), noise_generator(generator)
    below = np.floor(scaled)
    rounded = below + (source.random(len(scaled)) < scaled - below)
    return int(rounded.sum()) + int(source.binomial(protocol.users * protocol.bits, protocol.probability))


def chosen_protocol(users: int, range: float, epsilon: float, delta: float, *, least_levels: int = 1) -> ScalarProtocol:
    r"""Constants in closed form, for which a change of a value from z to z' costs $(\epsilon(2/g + |z - z'|/\tau),\ \delta)$.

    $$g \ge \max\{\sqrt s, \epsilon\},\qquad b = \Big\lfloor\frac{180\,g^2\ln(2/\delta)}{\epsilon^2 s}\Big\rfloor + 1,\qquad
      p = \frac{90\,g^2\ln(2/\delta)}{b\epsilon^2 s} < \frac12$$

    The variance is at most $90\tau^2\ln(2/\delta)/\epsilon^2 + s\tau^2/(4g^2)$. Far more noise than the exact privacy of the count needs:
    `calibrated_protocol` takes no more than that.

    That the cost holds is computed for the constants at hand (`all_shifts_delta`), not taken from the lemma. Refuted as printed: it wants
    $g \ge \tau\sqrt s$, which changes with the unit of the values, and allows $g < \epsilon$, where it is false: one user with
    g = 1, $\epsilon = 15$, $\delta = 0.5$ has b = 2, p = .277, and at $\epsilon(2/g + 1) = 45$ still $\delta = 0.522$.

    Args:
        users: s.
        range: $\tau$.
        epsilon: $\epsilon \in (0, 15]$.
        delta: $\delta \in (0, 1)$.
        least_levels: g is at least this.
    Raises:
        InputError: an argument is outside its range.
        CalibrationError: the constants do not give that cost.
    Reference: Lowy & Razaviyayn 2023, Lemma 56, which is Lemma 3.1 of Cheu, Joseph, Mao, Peng 2021, arXiv:2106.09805.
    """
    level, chance = require_positive("epsilon", epsilon), open_delta(delta)
    if not 1e-60 < level <= 15.0:
        raise outside("epsilon", epsilon, "a number above 1e-60 and at most 15")
    logarithm = math.log(2.0) - math.log(chance)
    levels = max(math.isqrt(require_count("users", users) - 1) + 1, require_count("least_levels", least_levels), math.ceil(level))
    half = 90.0 * levels**2 * logarithm / (level * level * users)
    bits = math.floor(2.0 * half) + 1
    protocol = ScalarProtocol(users=users, range=range, levels=levels, bits=bits, probability=min(half / bits, 0.5))
    if not all_shifts_delta(users * bits, protocol.probability, levels, level) <= chance:
        raise CalibrationError(
            f"the closed form's {bits} coins a user do not give epsilon = {level:g}, delta = {chance:g}.",
            source="users, epsilon and delta",
            remedy="take calibrated_protocol, or more levels",
        )
    return protocol


def calibrated_protocol(users: int, range: float, epsilon: float, delta: float, *, levels: int | None = None) -> ScalarProtocol:
    r"""The fewest fair coins a user with which any change of one value is exactly $(\epsilon, \delta)$-indistinguishable.

    Args:
        users, range, delta: as `chosen_protocol`.
        epsilon: > 0.
        levels: g; None: $\lceil\sqrt s\rceil$.
    Raises:
        InputError: an argument is outside its range.
        CalibrationError: too many coins would be needed.
    """
    count = require_count("users", users)
    steps = math.isqrt(count - 1) + 1 if levels is None else levels
    trials = least_fair_trials(steps, require_positive("epsilon", epsilon), open_delta(delta))
    protocol = ScalarProtocol(users=users, range=range, levels=steps, bits=-(-trials // count), probability=0.5)
    while (
        binomial_delta(count * protocol.bits, 0.5, steps, epsilon) > delta
    ):  # rounding b up adds coins; delta falls with them, but this is what makes it certain
        protocol = ScalarProtocol(users=users, range=range, levels=steps, bits=protocol.bits + 1, probability=0.5)
    return protocol


def _scaled(values: Array, protocol: ScalarProtocol) -> Array:
    return np.clip(np.nan_to_num(values / protocol.range, nan=0.0), 0.0, 1.0) * protocol.levels


def binomial_delta(trials: int, probability: float, shift: int, epsilon: float) -> float:
    r"""$\delta(\epsilon)$ between a binomial number and the same raised by at most `shift`, both ways; rounded up.

    $$\max_\pm\ \max_x\ P(X + g \ge x) - e^\epsilon P(X \ge x),\qquad X \sim \mathrm{Bin}(B, p)\ \text{or, for the other sign, }
    \mathrm{Bin}(B, 1-p)$$

    The ratio $P(X + g = x)/P(X = x)$ grows with x (the binomial law is log-concave), so the worst event is a tail, and its threshold is
    the first x with a ratio above $e^\epsilon$. The same argument makes $\delta$ grow with g: smaller shifts, and mixtures of
    shifts by joint convexity, are covered.

    Args:
        trials: B, at most 10^8.
        probability: p from 1e-15 to 1 - 1e-15.
        shift: g, at most 10^5; 0 gives 0.
        epsilon: $\epsilon \ge 0$, finite.
    Returns:
        A bound in [0, 1], within 2e-9 (relative to the tail's mass) of the exact value.
    """
    count, steps = require_count("trials", trials), require_count("shift", shift, low=0)
    if count > _MOST_TRIALS or steps > _MOST_SHIFT:
        raise outside("trials" if count > _MOST_TRIALS else "shift", (trials, shift), "at most 10^8 trials and a shift of at most 10^5")
    chance, level = require_nonnegative("probability", probability), require_nonnegative("epsilon", epsilon, allow_infinity=False)
    if not 1e-15 <= chance <= 1.0 - 1e-15:
        raise outside("probability", probability, "a number from 1e-15 to 1 - 1e-15")
    if steps == 0:
        return 0.0
    return min(max(_one_sided(count, p, steps, level) for p in {chance, 1.0 - chance}), 1.0)


def all_shifts_delta(trials: int, probability: float, levels: int, epsilon: float) -> float:
    r"""A $\delta$ for all shifts at once: a shift by $k \le g$ is $(\epsilon k/g,\ \delta)$-indistinguishable.

    Proof: $P(X + 1 = x)/P(X = x) = \frac{x(1-p)}{(B+1-x)p}$ grows with x and passes $e^{\epsilon/g}$ at
    $x_1 = \frac{(B+1)pe^{\epsilon/g}}{1-p+pe^{\epsilon/g}}$. The log ratio for a shift by k is a sum of k such terms, the largest of them
    at x itself, so it is above $\epsilon k/g$ only if $X + k > x_1$: at most $P(X > x_1 - g)$, bounded by Chernoff. The other sign is the
    same with $1 - p$.

    B trials, p strictly between 0 and 1, g >= 1, $\epsilon > 0$.

    Returns:
        A bound in [0, 1], rounded up.
    """
    count, steps = float(trials), levels
    growth, chance = epsilon / steps, probability
    exponents: list[float] = []
    for p in (chance, 1.0 - chance):
        # Divided by e^(epsilon/g), so that nothing overflows.
        share = (1.0 + 1.0 / count) * p / ((1.0 - p) * math.exp(-growth) + p) - steps / count
        if share <= p:
            return 1.0
        # KL(share || p), less what rounding may have added to it.
        divergence = float(special.rel_entr(min(share, 1.0), p) + special.rel_entr(max(1.0 - share, 0.0), 1.0 - p))
        exponents.append(math.inf if share > 1.0 else max(divergence - 1e-15, 0.0) * count)
    return min(math.exp(-min(exponents)) * (1.0 + 1e-12) + 1e-290, 1.0)


def least_fair_trials(shift: int, epsilon: float, delta: float) -> int:
    """The fewest fair coins whose number of heads hides a shift: the smallest B with `binomial_delta(B, 0.5, shift, epsilon) <= delta`."""
    target = open_delta(delta)
    passing = 1
    while binomial_delta(passing, 0.5, shift, epsilon) > target:
        passing *= 2
        if passing > _MOST_TRIALS:
            raise CalibrationError(
                f"no {_MOST_TRIALS} fair coins hide a shift of {shift} at epsilon = {epsilon:g}, delta = {target:g}.",
                source="shift, epsilon and delta",
                remedy="use fewer levels, or a larger epsilon or delta",
            )
    tried = range(passing // 2 + 1, passing + 1)
    return tried[bisect_left(tried, True, key=lambda trials: binomial_delta(trials, 0.5, shift, epsilon) <= target)]


def _one_sided(trials: int, chance: float, shift: int, epsilon: float) -> float:
    r"""$\delta(\epsilon)$ of a binomial number against the same plus `shift`, in this order; rounded up."""
    offsets = np.arange(1, shift + 1)

    def log_ratio(x: int) -> float:
        """Of P(X = x - g) to P(X = x), for g <= x <= B."""
        return float(np.log((x - shift + offsets) / (trials - x + offsets)).sum()) + shift * (math.log1p(-chance) - math.log(chance))

    # Beyond B the second law has no mass: the ratio is infinite.
    high = shift + bisect_left(range(shift, trials + 1), True, key=lambda x: log_ratio(x) > epsilon)
    moved, stayed = _upper_tail(trials, chance, high - shift), _upper_tail(trials, chance, high)
    subtracted = math.exp(min(epsilon + math.log(stayed), 0.0)) if stayed > 0.0 else 0.0
    # What underflowed is counted as more.
    return max(moved * (1.0 + _MARGIN) - subtracted * (1.0 - _MARGIN), moved * _MARGIN, 1e-290)


def _upper_tail(trials: int, chance: float, x: int) -> float:
    """P(X >= x)."""
    if x <= 0:
        return 1.0
    return 0.0 if x > trials else float(special.betainc(x, trials - x + 1, chance))
