r"""A sum of scalars in the shuffle model: each user sends bits, a shuffler mixes them, the analyser counts ones.

What the analyser sees is the number of ones, $\sum_i\hat z_i + \mathrm{Bin}(bs, p)$, whatever the order of the bits: binomial noise to
which every user contributes a share, so that no one need be trusted with the values.

Reference: Cheu, Joseph, Mao, Peng 2021, arXiv:2106.09805, Section 3; Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 14.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.large_delta import open_delta
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import CalibrationError, InputError
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.shuffle.binomial import all_shifts_delta, binomial_delta, least_fair_trials

Bits = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarProtocol:
    r"""The public constants of the protocol for s values in $[0, \tau]$.

    Args:
        users: s.
        range: $\tau > 0$.
        levels: g >= 1: a value is rounded at random to a multiple of $\tau/g$, without bias.
        bits: b >= 1: coins that a user tosses for the noise.
        probability: p in (0, 1/2], of a one.
    Raises:
        InputError: a number out of range.
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
    def message_bits(self) -> int:
        """The bits that one user sends, g + b."""
        return self.levels + self.bits

    @property
    def noise_variance(self) -> float:
        r"""$(\tau/g)^2\,b s p(1-p)$, of the sum."""
        unit = self.range / self.levels
        return unit * unit * self.users * self.bits * self.probability * (1.0 - self.probability)

    def variance(self, values: Array) -> float:
        r"""Of the analyser's sum: $(\tau/g)^2\big[\sum_i\phi_i(1-\phi_i) + bsp(1-p)\big]$, $\phi_i$ the fractional part of $z_ig/\tau$."""
        scaled = _scaled(values, self)
        fractions = scaled - np.floor(scaled)
        return (self.range / self.levels) ** 2 * float((fractions * (1.0 - fractions)).sum()) + self.noise_variance

    def exact_delta(self, epsilon: float) -> float:
        r"""$\delta(\epsilon)$ of the count when one value changes in any way: the shift is at most g; see `binomial_delta`."""
        return binomial_delta(self.users * self.bits, self.probability, self.levels, epsilon)


def local_messages(value: float, protocol: ScalarProtocol, generator: np.random.Generator) -> Bits:
    r"""The local randomiser: the g + b bits of one user.

    $\hat z + \mathrm{Bin}(b, p)$ of them are ones, with $\hat z$ the randomly rounded $zg/\tau$.

    Args:
        value: in $[0, \tau]$; what lies outside counts as the nearer end.
        protocol: the public constants.
        generator: the user's own randomness.
    """
    try:
        values = np.array([value])
    except ValueError:
        raise outside("value", value, "a number") from None
    scaled, source = float(_scaled(values, protocol)[0]), noise_generator(generator)
    below = math.floor(scaled)
    ones = below + int(source.random() < scaled - below) + int(source.binomial(protocol.bits, protocol.probability))
    return np.arange(protocol.message_bits) < ones


def shuffled(messages: Bits, generator: np.random.Generator) -> Bits:
    """The shuffler: all bits of all users in one random order.

    Args:
        messages: shape (s, g + b), one row a user.
        generator: the shuffler's randomness.
    """
    return noise_generator(generator).permutation(_require_bits(messages).reshape(-1))


def analyse(bits: Bits | int, protocol: ScalarProtocol) -> float:
    r"""The analyser: $\frac\tau g(\#\text{ones} - pbs)$, an unbiased estimate of the sum.

    Args:
        bits: the shuffled bits, or just how many of them are ones.
        protocol: the public constants.
    """
    _require_protocol(protocol)
    ones = bits if isinstance(bits, int) and not isinstance(bits, bool) else int(np.count_nonzero(_require_bits(bits)))
    if not 0 <= ones <= protocol.users * protocol.message_bits:
        raise outside("bits", bits, f"at most {protocol.users * protocol.message_bits} bits that are ones, and no fewer than none")
    return protocol.range / protocol.levels * (ones - protocol.probability * protocol.bits * protocol.users)


def simulated_ones(values: Array, protocol: ScalarProtocol, generator: np.random.Generator) -> int:
    """The number of ones that the shuffler hands on, drawn directly: the same law as the protocol, without its bits.

    Args:
        values: one number a user, shape (users,).
        protocol: what the users do.
        generator: of the users' rounding and random bits.
    Raises:
        InputError: there are not as many values as users.
    """
    _require_protocol(protocol)
    if not isinstance(values, np.ndarray) or values.shape != (protocol.users,):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"values of shape {np.shape(values) if isinstance(values, np.ndarray) else None}; the protocol is for {protocol.users} users.",
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
    while protocol.exact_delta(epsilon) > delta:  # rounding b up adds coins; delta falls with them, but this is what makes it certain
        protocol = ScalarProtocol(users=users, range=range, levels=steps, bits=protocol.bits + 1, probability=0.5)
    return protocol


def _require_protocol(protocol: object) -> None:
    if not isinstance(protocol, ScalarProtocol):
        raise outside("protocol", protocol, "a ScalarProtocol, from chosen_protocol or calibrated_protocol")


def _require_bits(bits: object) -> Bits:
    if not isinstance(bits, np.ndarray) or bits.dtype != np.bool_:
        raise outside("bits", bits, "an array of truth values")
    return bits


def _scaled(values: Array, protocol: ScalarProtocol) -> Array:
    _require_protocol(protocol)
    if values.dtype.kind not in "iuf" or values.ndim != 1:
        raise outside("values", values, "numbers in one row")
    return np.clip(np.nan_to_num(values / protocol.range, nan=0.0), 0.0, 1.0) * protocol.levels
