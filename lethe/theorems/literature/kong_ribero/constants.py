r"""The papers' constants: $L_\lambda$ of one step in both versions, $\theta_L$ of a pass, and the largest step size they allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.errors import InputError

FloatArray = NDArray[np.float64]
StepFormula = Callable[[ArrayLike, ArrayLike, ArrayLike], FloatArray]
r"""$L_\lambda$ of a step size, m and M."""


class StepNumbers(TypedDict):
    r"""What the bounds of one step are functions of: finite numbers, or arrays that broadcast."""

    step_size: ArrayLike
    r"""$\lambda > 0$."""
    clip_norm: ArrayLike
    """$C > 0$; without clipping the bound on every gradient."""
    batch_size: ArrayLike
    r"""$b \ge 1$."""
    noise_std: ArrayLike
    r"""$\sigma > 0$, parameter units."""
    weak_convexity: ArrayLike
    """m."""
    smoothness: ArrayLike
    r"""$M \ge 0$."""


class PassNumbers(StepNumbers):
    """What the bounds of several passes are functions of."""

    steps: ArrayLike
    r"""$T \ge 1$."""
    steps_per_pass: ArrayLike
    r"""$\ell \ge 1$."""


def require_numbers(numbers: Mapping[str, object], kind: type[StepNumbers]) -> None:
    """Raise InputError unless `numbers` are those that `kind` lists: `Unpack` is looked at by type checkers alone."""
    needed = set(kind.__required_keys__)
    if needed != set(numbers):
        missing, unknown = sorted(needed - numbers.keys()), sorted(numbers.keys() - needed)
        raise InputError(
            f"missing: {', '.join(missing) or 'nothing'}; unknown: {', '.join(unknown) or 'nothing'}.",
            source="the keywords of a bound of Kong & Ribero",
            remedy=f"give {', '.join(sorted(needed))}.",
        )


def lipschitz_constant(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$L_\lambda$ of the revised version: a step without clipping is $L_\lambda$-Lipschitz for $\lambda \le 1/(m+M)$.

    $$L_\lambda = \sqrt{1 + 2\lambda m\left[1 + \frac{m}{2(M+m)}\right]}$$

    Never below the exact constant, `lethe.theorems.lipschitz.plain_step`. With clipping active the paper proves $\sqrt2 L_\lambda$.

    Args:
        step_size: $\lambda > 0$.
        weak_convexity: m; a negative one (strong convexity) is read as 0, the least the paper has.
        smoothness: $M \ge 0$.

    Returns:
        $L_\lambda \ge 1$, of the shape to which the arguments broadcast.

    Reference: Kong & Ribero, arXiv:2407.05237, revised version, equation (13).
    """
    return np.sqrt(1.0 + _excess(step_size, weak_convexity, smoothness, 0.5))


def first_lipschitz_constant(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$L_\lambda$ of the first version, larger than that of the revised one for $m > 0$; stated there with clipping, which is wrong.

    $$L_\lambda = \sqrt{1 + 2\lambda m\left[1 + \frac{m}{M+m}\right]}$$

    Args, Returns, Raises: those of `lipschitz_constant`.

    Reference: Kong & Ribero 2024, arXiv:2407.05237, first version, equation (12).
    """
    return np.sqrt(1.0 + _excess(step_size, weak_convexity, smoothness, 1.0))


def log_square(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$\log L_\lambda^2$ of `lipschitz_constant`, exact to rounding even where $L_\lambda$ is a few roundings from 1.

    Args, Raises: as `lipschitz_constant`.
    """
    return np.log1p(_excess(step_size, weak_convexity, smoothness, 0.5))


def first_log_square(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$\log L_\lambda^2$ of `first_lipschitz_constant`.

    Args, Raises: as `lipschitz_constant`.
    """
    return np.log1p(_excess(step_size, weak_convexity, smoothness, 1.0))


def theta(squared: ArrayLike, steps: ArrayLike) -> FloatArray:
    r"""Fraction of one touch's squared privacy loss that is left after `steps` noisy steps.

    $$\theta_L(s) = \frac{L^{2(s-1)}}{\sum_{j<s} L^{2j}} = \frac{1-L^{-2}}{1-L^{-2s}}, \qquad \theta_L(0) = 0$$

    $1/s$ at $L = 1$; tends to $1-L^{-2}$ for $L > 1$ and to 0 for $L < 1$ as s grows.

    Args:
        squared: $\log L^2$, L the Lipschitz constant of one step without noise: here an error of a rounding costs no more than a rounding.
        steps: $s \ge 0$, steps from the touch to the release, the touching step included.

    Returns:
        $\theta_L(s)$ in [0, 1], of the shape to which the arguments broadcast.

    Raises:
        InputError: `steps` is not finite or negative.

    Reference: Kong & Ribero, arXiv:2407.05237, equation (6) of the first version, (15) of the revised one; smooth through L = 1.
    """
    q, s = np.broadcast_arrays(np.asarray(squared, dtype=np.float64), checked("steps", steps, low=0.0))
    count = np.maximum(s, 1.0)
    size = np.where(q == 0.0, 1.0, np.abs(q))
    # (1 - e^-q) / (1 - e^-sq) for q > 0; for q < 0 the same after both sides are turned over, so that nothing overflows.
    ratio = np.expm1(-size) / np.expm1(-count * size) * np.exp(np.minimum(q, 0.0) * (count - 1.0))
    return np.where(s == 0.0, 0.0, np.where(q == 0.0, 1.0 / count, ratio))


def step_limit(weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$1/(2(m+M))$, the largest step size of most of the theorems; infinity for linear losses. Args: those of `lipschitz_constant`."""
    with np.errstate(divide="ignore", over="ignore"):
        total = checked("smoothness", smoothness, low=0.0) + _weak(weak_convexity)
        return np.asarray(0.5 / total, dtype=np.float64)


def touch(step_size: ArrayLike, clip_norm: ArrayLike, batch_size: ArrayLike, noise_std: ArrayLike) -> FloatArray:
    r"""$s/\sigma = 2\lambda C/(b\sigma)$: how far one step on the record moves the iterate, in units of the noise of one step.

    Args:
        step_size: $\lambda > 0$.
        clip_norm: C > 0, in loss per parameter unit.
        batch_size: $b \ge 1$.
        noise_std: $\sigma > 0$, in parameter units.
    """
    with np.errstate(over="ignore"):
        moved = 2.0 * checked("step_size", step_size, above=0.0)
        moved = moved * (checked("clip_norm", clip_norm, above=0.0) / checked("batch_size", batch_size, low=1.0))
        return np.asarray(moved / checked("noise_std", noise_std, above=0.0), dtype=np.float64)


def one_touch(numbers: StepNumbers) -> FloatArray:
    """`touch` at the numbers of a run."""
    return touch(numbers["step_size"], numbers["clip_norm"], numbers["batch_size"], numbers["noise_std"])


def one_step_rho(apart: ArrayLike, moved: ArrayLike, noise_std: ArrayLike) -> FloatArray:
    r"""$\rho = \frac12(\text{apart}/\sigma + \text{moved})^2$ of one noisy step of two runs.

    Args:
        apart: the distance of the two runs before it, >= 0, in parameter units; infinity allowed.
        moved: what the record moves in it, in units of the noise.
        noise_std: $\sigma > 0$, in parameter units.
    """
    distance = np.asarray(apart, dtype=np.float64)
    checked("apart", np.where(np.isposinf(distance), 0.0, distance), low=0.0)
    with np.errstate(over="ignore"):
        far = distance / checked("noise_std", noise_std, above=0.0)
        return 0.5 * np.square(far + np.asarray(moved, dtype=np.float64))


def where_allowed(numbers: StepNumbers, rho: FloatArray, times: float = 1.0) -> FloatArray:
    r"""$\rho$ where the step size is allowed, infinity elsewhere: no bound is proved there.

    Args:
        numbers: of the run; give $\lambda$, m and M.
        rho: of the shape to which these broadcast.
        times: > 0: so many times the `step_limit` is allowed.
    """
    limit = times * step_limit(numbers["weak_convexity"], numbers["smoothness"])
    return np.where(np.asarray(numbers["step_size"], dtype=np.float64) <= limit, rho, np.inf)


def checked(name: str, given: ArrayLike, *, low: float = -np.inf, above: float = -np.inf) -> FloatArray:
    """Finite numbers as an array, or InputError.

    Args:
        name: what the error calls them.
        given: anything that numpy makes an array of.
        low: the smallest number that is accepted.
        above: every number must be larger than it.
    """
    try:
        raw = np.asarray(given)
        values = raw.astype(np.float64) if raw.dtype.kind in "iuf" and raw.size else None
    except (TypeError, ValueError, OverflowError):
        values = None
    if values is not None and bool(np.all(np.isfinite(values) & (values >= low) & (values > above))):
        return values
    needed = f"finite numbers > {above:g}" if above > -np.inf else "finite numbers" + (f" >= {low:g}" if low > -np.inf else "")
    raise InputError(f"{name} = {given!r}; it needs {needed}.", source=f"the argument {name}", remedy="check its sign and its units.")


def _weak(weak_convexity: ArrayLike) -> FloatArray:
    return np.maximum(checked("weak_convexity", weak_convexity), 0.0)


def _excess(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike, factor: float) -> FloatArray:
    weak, smooth = _weak(weak_convexity), checked("smoothness", smoothness, low=0.0)
    half = 0.5 * weak + 0.5 * smooth
    share = 0.5 * weak / np.where(half > 0.0, half, 1.0)
    with np.errstate(over="ignore"):
        return checked("step_size", step_size, above=0.0) * weak * (2.0 + 2.0 * factor * share)
