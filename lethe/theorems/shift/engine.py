r"""The shift engine: the privacy of the last iterate of a noisy iteration, for any Lipschitz constants.

Every theorem on the last iterate comes down to it: `optimal_shift`, `holder_shift` and `unlearning` pass Lipschitz constants $L_t$,
sensitivities $s_t$ (0 where the batch lacks the record) and noise $\tau_t$ of each step.

Two coupled runs on neighbouring data make steps $x \mapsto \phi_t(x) + \nu_t$, $\nu_t \sim N(0, \tau_t^2 I)$, each followed by a
nonexpansive map. With $\|\phi_t(x) - \phi_t(y)\| \le L_t \|x - y\|$ and $\sup_x \|\phi_t(x) - \phi'_t(x)\| \le s_t$, every choice of
payments $a_t \ge 0$ and shifts

$$z_t = L_t z_{t-1} + s_t - a_t \ge 0, \qquad z_0 = 0, \quad z_T = 0$$

makes the last iterate $\mu$-GDP with $\mu^2 = \sum_t a_t^2 / \tau_t^2$. The smallest such $\mu$ is found exactly, in O(T).
"""

import operator
from dataclasses import dataclass
from math import frexp, ldexp
from typing import NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from lethe.errors import InputError
from lethe.theorems.shift.pooling import Piece, WindowStart, best_start, join_pieces, outward, pieces, pool, squared_mus
from lethe.theorems.shift.segments import ZERO_EXPONENT, Floats, Scaled, Segments, single_steps

_UNITS = {
    "lipschitz": "the Lipschitz constant of each step",
    "sensitivity": "how far each step moves the iterate when the record changes",
    "noise_std": "the noise of each step, in parameter units",
    "diameter": "the largest possible distance between the two runs after each step",
}


class Path(NamedTuple):
    """Checked arrays of one length T, one entry a step."""

    lipschitz: Floats
    sensitivity: Floats
    noise_std: Floats

    @property
    def steps(self) -> int:
        """T."""
        return self.lipschitz.size


def checked_path(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike) -> Path:
    """The three sequences as arrays of one length T >= 1, or InputError."""
    path = Path(_sequence("lipschitz", lipschitz), _sequence("sensitivity", sensitivity), _sequence("noise_std", noise_std))
    lengths = {name: len(values) for name, values in path._asdict().items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            "lipschitz, sensitivity and noise_std have lengths "
            + ", ".join(str(length) for length in lengths.values())
            + "; they need one length, one entry a step.",
            source="the three sequences that describe a run, step by step",
            remedy="repeat a constant with numpy.full(steps, value).",
        )
    return path


def checked_diameter(diameter: ArrayLike | None, steps: int) -> Floats | None:
    """None, or an array of T numbers >= 0 (inf where there is no bound) from a number or an array; all inf is None."""
    if diameter is None:
        return None
    values = _numbers("diameter", diameter)
    if values.ndim == 0:
        values = np.full(steps, float(values))
    if values.shape != (steps,):
        raise _refusal("diameter", f"has shape {values.shape}", f"a number, or one entry for each of the {steps} steps")
    if not bool(np.all(values >= 0.0)):
        raise _refusal("diameter", f"contains {_first_bad(values, values >= 0.0)}", "numbers >= 0; inf where there is no bound")
    return values if bool(np.isfinite(values).any()) else None


def checked_batches(batches_per_pass: SupportsIndex) -> int:
    """An integer >= 1, or InputError."""
    try:
        number = operator.index(batches_per_pass)
    except TypeError:
        number = 0
    if number < 1 or isinstance(batches_per_pass, bool):
        raise InputError(
            f"batches_per_pass = {batches_per_pass!r}; it needs an integer >= 1.",
            source="the number of disjoint batches that make one pass over the records",
            remedy="pass floor(records / batch size).",
        )
    return number


def _sequence(name: str, argument: ArrayLike) -> Floats:
    values = _numbers(name, argument)
    if values.ndim != 1 or values.size == 0:
        got = "is a single number" if values.ndim == 0 else f"has shape {values.shape}"
        raise _refusal(name, got, "a sequence of T >= 1 numbers, one a step", remedy="repeat a constant with numpy.full(steps, value).")
    good = np.isfinite(values) & (values >= 0.0)
    if not bool(good.all()):
        raise _refusal(name, f"contains {_first_bad(values, good)}", "finite numbers >= 0")
    return values


def _numbers(name: str, argument: ArrayLike) -> Floats:
    try:
        raw = np.asarray(argument)
        if raw.dtype.kind not in "fiu":
            raise TypeError
        return raw.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise _refusal(name, f"is {type(argument).__name__} that holds no real numbers", "real numbers") from None


def _first_bad(values: Floats, good: np.ndarray) -> str:
    step = int(np.argmin(good))
    return f"{values[step]:g} at step {step + 1}"


def _refusal(name: str, got: str, needed: str, remedy: str = "check the run that these numbers were computed from.") -> InputError:
    return InputError(f"{name} {got}; it needs {needed}.", source=f"{name}: {_UNITS[name]}", remedy=remedy)


_NO_STEPS: Piece = (0.5, 1, 0.0, ZERO_EXPONENT, 0.0, ZERO_EXPONENT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shift:
    r"""An optimal way to pay for a record's influence, and what it costs.

    `mu` is the result; `payments` and `shifts` are computed when asked for, in O(T).
    """

    mu: float
    """$\\mu$ of the Gaussian differential privacy of the last iterate, rounded up; inf if no noise can hide the record."""
    lipschitz: Floats
    sensitivity: Floats
    noise_std: Floats
    diameter: Floats | None
    window: int
    """$\\tau$: the shift was set to the diameter (or to the distance tracked so far, if smaller) after this step; 0 if never."""

    @property
    def payments(self) -> Floats:
        r"""$a_t$, shape (T,), with $\sum a_t^2/\tau_t^2 = \mu^2$ up to rounding; 0 up to the window.

        Raises:
            InputError: `mu` is inf: no payments end at shift zero.
        """
        return self._trajectory()[0]

    @property
    def shifts(self) -> Floats:
        r"""$z_t$ after each step, shape (T,); before the window, the distance tracked so far.

        Raises:
            InputError: `mu` is inf: no payments end at shift zero.
        """
        return self._trajectory()[1]

    def _trajectory(self) -> tuple[Floats, Floats]:
        if self.mu == np.inf:
            raise InputError(
                "mu = inf, so there are no payments that bring the shift to 0; they need noise after the last touch.",
                source="noise_std and sensitivity of the run",
                remedy="check `mu` first, or add noise at the last step.",
            )
        path = Path(self.lipschitz, self.sensitivity, self.noise_std)
        tracked = tracked_distances(path, self.diameter)
        payments = np.zeros(path.steps)
        shifts = np.array(tracked[1:])
        start = tracked[self.window]
        minorant = pool(*_from_window(path, self.window, start))
        ends = np.append(minorant.first[1:] - 1, path.steps - self.window)
        # Index 0 of the pooled path is the start itself; index i is step window + i.
        for first, last, piece in zip(minorant.first.tolist(), ends.tolist(), pieces(minorant.segments), strict=True):
            inside = slice(self.window + max(first, 1) - 1, self.window + last)
            part = Path(path.lipschitz[inside], path.sensitivity[inside], path.noise_std[inside])
            payments[inside] = _payments(part, piece)
            shifts[inside] = _shifts(part, payments[inside], start if first == 0 else 0.0)
        return payments, shifts


def solve(lipschitz: ArrayLike, sensitivity: ArrayLike, noise_std: ArrayLike, diameter: ArrayLike | None = None) -> Shift:
    r"""Smallest $\mu$ that the shift argument proves for the last iterate, and how to pay it.

    $$\mu^2 = \min_{a} \sum_t \frac{a_t^2}{\tau_t^2} \quad\text{s.t.}\quad z_t = L_t z_{t-1} + s_t - a_t \ge 0,\ z_0 = z_T = 0$$

    With $w_t = \prod_{j>t} L_j$ this is $\sum (\text{rise})^2/(\text{run})$ over the segments of the greatest convex minorant of the
    points $(\sum_{j \le t} w_j^2 \tau_j^2, \sum_{j \le t} w_j s_j)$. With a diameter it is the smallest such value over all starts
    $\tau < T$ with $z_\tau = \min(D_\tau, f_\tau)$, $f_t = \min(D_t, L_t f_{t-1} + s_t)$.

    $L_t \ge 0$, the Lipschitz constant of each step before its noise, may be above 1; $s_t \ge 0$ is how far step t moves the iterate when
    the record changes, 0 if untouched; $\tau_t \ge 0$ is 0 for a step without noise; each has shape (T,), and $s_t$ and $\tau_t$ are in
    parameter units. $D_t \ge 0$, a number or of shape (T,): the two runs are never further apart after step t, in the units of $z_t$
    (before a contracting proximal map of factor $c_t$ that is diameter / $c_t$); inf or None: unknown.

    Returns:
        The optimal Shift. `mu` is never below the exact optimum and exceeds it by a relative $16 (T + 8) 2^{-53}$ at most;
        it is 0 if nothing is touched (or all is forgotten through $L_t = 0$), and inf if no noise follows a touch.

    Reference: the lemma is Bok, Su & Altschuler 2024, arXiv:2403.00278, Lemma C.3; the optimum for one touch and constant L is
    in the 2025 version of Kong & Ribero, arXiv:2407.05237, Appendix B. The optimum in general is proved in docs/theory.md.
    """
    path = checked_path(lipschitz, sensitivity, noise_std)
    bound = checked_diameter(diameter, path.steps)
    squared = float(squared_mus(pool(_steps(path), np.zeros(path.steps, dtype=np.int64)), 1)[0])
    window: int | None = None
    if bound is not None:
        tracked = tracked_distances(path, bound)
        starts = [
            WindowStart(before=t, piece=carried(tracked[t]), moment=t) for t in range(1, path.steps) if tracked[t] == bound[t - 1] < np.inf
        ]
        if starts:
            squared, window = best_start(pieces(_steps(path)), starts, squared)
    return Shift(
        mu=float(outward(np.array(squared), path.steps)),
        lipschitz=path.lipschitz,
        sensitivity=path.sensitivity,
        noise_std=path.noise_std,
        diameter=bound,
        window=window or 0,
    )


def carried(shift: float, stretch: Piece = _NO_STEPS) -> Piece:
    """A piece that brings a shift through an untouched stretch (by default of no steps) into what follows."""
    mantissa, exponent = frexp(shift)
    return join_pieces((0.5, 1, mantissa, exponent if shift > 0.0 else ZERO_EXPONENT, 0.0, ZERO_EXPONENT), stretch)


def _steps(path: Path) -> Segments:
    stretch = single_steps(path.lipschitz, path.noise_std)
    return Segments(product=stretch.product, rise=Scaled.of(path.sensitivity), run=stretch.run)


def _from_window(path: Path, window: int, start: float) -> tuple[Segments, np.ndarray]:
    """The path after the window, its start shift as a step of its own in front: a touch without noise."""
    after = Path(
        np.concatenate(([1.0], path.lipschitz[window:])),
        np.concatenate(([start], path.sensitivity[window:])),
        np.concatenate(([0.0], path.noise_std[window:])),
    )
    return _steps(after), np.zeros(after.steps, dtype=np.int64)


def tracked_distances(path: Path, diameter: Floats | None) -> list[float]:
    r"""$f_0, \dots, f_T$: the largest distance of the two runs after each step if none of it is paid for, shape (T + 1,)."""
    distance = 0.0
    result = [distance]
    caps = [float("inf")] * path.steps if diameter is None else diameter.tolist()
    for factor, added, cap in zip(path.lipschitz.tolist(), path.sensitivity.tolist(), caps, strict=True):
        # 0 * inf is 0 here: a step that forgets forgets any distance.
        distance = min(cap, (factor * distance if factor > 0.0 else 0.0) + added)
        result.append(distance)
    return result


def _payments(part: Path, piece: Piece) -> Floats:
    r"""$a_t = \kappa w_t \tau_t^2$ inside one segment of slope $\kappa$, $w_t$ relative to the segment's end."""
    result = np.zeros(part.steps)
    _, _, rise, rise_exponent, run, run_exponent = piece
    if rise == 0.0:
        return result
    slope, scale = rise / run, rise_exponent - run_exponent
    weight, power = 1.0, 0
    factors, noises = part.lipschitz.tolist(), part.noise_std.tolist()
    for t in range(part.steps - 1, -1, -1):
        noise, bits = frexp(noises[t])
        exponent = scale + power + 2 * bits
        result[t] = ldexp(slope * weight * noise * noise, max(min(exponent, 1020), -1100))
        factor, bits = frexp(factors[t])
        weight, carry = frexp(weight * factor)
        power += bits + carry
    return result


def _shifts(part: Path, payments: Floats, start: float) -> Floats:
    """z_t inside one segment, known at both ends: forward where that loses fewer digits, else backward."""
    steps = list(zip(part.lipschitz.tolist(), part.sensitivity.tolist(), payments.tolist(), strict=True))
    forward, backward = [(start, 0.0)], [(0.0, 0.0)]
    for factor, added, paid in steps:
        value, error = forward[-1]
        arriving = (factor * value if factor > 0.0 else 0.0) + added
        forward.append((arriving - paid, (factor * error if factor > 0.0 else 0.0) + arriving + paid))
    for factor, added, paid in reversed(steps[1:]):
        value, error = backward[-1]
        if factor == 0.0:
            backward.append((0.0, float("inf")))
        else:
            backward.append(((value + paid - added) / factor, (error + value + paid + added) / factor))
    pairs = zip(forward[1:], reversed(backward), strict=True)
    return np.array([max(ahead[0] if ahead[1] <= back[1] else back[0], 0.0) for ahead, back in pairs])
