r"""The Lipschitz constant of one step: gradient steps without, with and regardless of clipping, and the ridge proximal step.

`steps` calls it for each step of a run, published bounds for theirs: a step that contracts makes the last iterate forget a record.

Per-record losses whose gradient differences are $H(x - y)$ with a symmetric $-m I \preceq H \preceq M I$: `weak_convexity` is m
(negative for strongly convex losses), `smoothness` is M. With $a = \lambda m$ and $h = \lambda M$ every constant here is the supremum of
the norm of $I - \lambda H$ or $I - \lambda P H$, rounded up. Scalars give a float, arrays (broadcast together) an array.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.calculus.rounding import above
from lethe.errors import InputError

Floats = NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)


def plain_step(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> Any:
    r"""Lipschitz constant of $x \mapsto x - \lambda \nabla f(x)$ where no clipping acts.

    $$L = \max(|1 + a|,\ |1 - h|), \qquad a = \lambda m,\ h = \lambda M$$

    Exact: attained by a quadratic. Below 1 for strongly convex losses with $h < 2$; exactly 1 for convex losses with $h \le 2$.

    $\lambda \ge 0$; $m \ge -M$, negative for $|m|$-strongly convex losses, 0 for convex ones; $M \ge 0$. Rounded up. The mean of such steps
    over a batch has the same constant. Reference: Nesterov 2004, Introductory Lectures on Convex Optimization, for convex losses; for
    weakly convex losses it improves the constant $L_\lambda$ of Kong & Ribero 2024, arXiv:2407.05237, and needs no condition on the step
    size.
    """
    low, high, _, _ = _ends(step_size, weak_convexity, smoothness)
    return _result(np.maximum(low, high))


def generalised_linear_step(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> Any:
    r"""Lipschitz constant of $x \mapsto x - \lambda\,\mathrm{Clip}_C(\nabla f(x))$ for $f(x) = g(\langle u, x\rangle)$ with scalar g.

    $$L = \max(|1 + a|,\ |1 - h|,\ 1)$$

    Clipping truncates $g'$ and keeps its direction, so the clipped loss has curvature between $-m$ and $M$ still, 0 included.

    $L \ge 1$ is rounded up, whatever the clip norm. Reference: proved in docs/theory.md.
    """
    low, high, _, _ = _ends(step_size, weak_convexity, smoothness)
    return _result(np.maximum(np.maximum(low, high), 1.0))


def clipped_step(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> Any:
    r"""Lipschitz constant of $x \mapsto x - \lambda\,\mathrm{Clip}_C(\nabla f(x))$, per-record clipping, in any dimension.

    $$L = \max(|1 + a|,\ |1 - h|,\ 1,\ \sqrt\Lambda), \qquad \Lambda = 1 + \frac{(a + h)^2}{g (4 - g)},\quad g = h - a$$

    with $\sqrt\Lambda$ only where $0 < g < 4$ and its angle $y = \frac12 - \frac{(2 - g)(a + h)}{2 g (4 - g)}$ lies in $(0, 1)$.
    For convex losses and $h \le 2$ it is $1/\sqrt{1 - h/4}$.

    Attained for dimensions $\ge 2$. It holds for flat and per-group clipping alike, not for normalisation $v/\|v\|$. Reference: proved in
    docs/theory.md; it replaces the constant $\sqrt2 L_\lambda$ of Kong & Ribero 2024, arXiv:2407.05237.
    """
    low, high, a, h = _ends(step_size, weak_convexity, smoothness)
    with np.errstate(over="ignore"):
        g, total, size = h - a, a + h, np.abs(a) + h
    # For g outside (0, 4) no angle strictly between the ends beats them. Inside, a and h are small enough to be squared.
    inside = (g > 0.0) & (g < 4.0)
    flat_total, g, total = total, np.where(inside, g, 2.0), np.where(inside, total, 0.0)
    curve = g * (4.0 - g)
    turned = inside & (np.abs((2.0 - g) * total) < curve)
    # The only cancellations are in g, which costs an eps of |a| + h, and in 4 - g, which costs an eps of 4 more.
    size = np.where(inside, size, 0.0)
    spread = size / np.where(turned, g, 1.0) + (size + 4.0) / np.where(turned, 4.0 - g, 1.0)
    excess = total * total / curve * (1.0 + 8.0 * _EPS * (1.0 + spread))
    block = np.where(turned, np.sqrt(1.0 + excess) * (1.0 + 2.0 * _EPS), 1.0)
    # Without curvature the step is the identity plus a constant; curvature whose product underflowed is not none.
    underflowed = (h == 0.0) & (np.asarray(smoothness) > 0.0) & (np.asarray(step_size) > 0.0)
    flat = np.where(underflowed, above(1.0), 1.0)
    return _result(np.maximum(np.maximum(low, high), np.where(flat_total == 0.0, flat, np.maximum(block, 1.0))))


def ridge_contraction(step_size: ArrayLike, strength: ArrayLike) -> Any:
    r"""Lipschitz constant $c = 1/(1 + \lambda\kappa)$ of the proximal step of a regulariser that contains $\frac\kappa2\|x\|^2$, rounded
    up.

    The noise is added before the proximal step, so c multiplies the constant of the next step. Reference: Bauschke & Combettes 2017, Convex
    Analysis and Monotone Operator Theory in Hilbert Spaces, chapter 23.
    """
    step, weight = _checked("step_size", step_size, 0.0), _checked("strength", strength, 0.0)
    with np.errstate(over="ignore"):
        # What underflows is not 0: no such step forgets everything.
        return _result(np.minimum(1.0, above(1.0 / (1.0 + step * weight), 2.0 * _EPS)))


def _ends(step_size: ArrayLike, weak_convexity: ArrayLike, smoothness: ArrayLike) -> tuple[Floats, Floats, Floats, Floats]:
    """|1 + a| and |1 - h|, rounded up, with a and h."""
    step = _checked("step_size", step_size, 0.0)
    weak, smooth = _checked("weak_convexity", weak_convexity, -np.inf), _checked("smoothness", smoothness, 0.0)
    try:
        step, weak, smooth = np.broadcast_arrays(step, weak, smooth)
    except ValueError:
        raise InputError(
            f"step_size, weak_convexity, smoothness have shapes {step.shape}, {weak.shape}, {smooth.shape}; they need shapes that fit.",
            source="the arguments of a step's Lipschitz constant",
            remedy="pass numbers, or arrays of one shape.",
        ) from None
    if bool(np.any(weak < -smooth)):
        raise InputError(
            f"weak_convexity = {weak[weak < -smooth].flat[0]:g} is below -smoothness = {-smooth[weak < -smooth].flat[0]:g}; "
            "it needs -smoothness <= weak_convexity.",
            source="weak_convexity and smoothness bound the curvature of the loss: -weak_convexity <= curvature <= smoothness",
            remedy="a loss cannot be more strongly convex than it is smooth: raise smoothness, or lower the strong convexity.",
        )
    with np.errstate(over="ignore"):
        a, h = step * weak, step * smooth
    if not bool(np.isfinite(a).all() and np.isfinite(h).all()):
        raise InputError(
            "step_size times curvature is beyond the range of numbers; it needs a finite product.",
            source="step_size, weak_convexity and smoothness",
            remedy="check the units of the step size.",
        )
    return _one_plus(step, weak, a), _one_plus(step, -smooth, -h), a, h


def _one_plus(x: Floats, y: Floats, product: Floats) -> Floats:
    """|1 + x y| rounded up, and exact where no rounding happens: h = 2 must give 1, not 1 and a bit."""
    total = 1.0 + product
    # What the addition lost (Knuth's two-sum) and what the product lost (Dekker's product), both exact.
    part = total - 1.0
    lost = (1.0 - (total - part)) + (product - part) + _lost_by_product(x, y, product)
    # A product below the range of doubles still has a sign.
    lost = np.where((product == 0.0) & (x != 0.0) & (y != 0.0), np.sign(x) * np.sign(y) * 1e-300, lost)
    unraised = (lost == 0.0) | (np.sign(lost) * np.sign(total) < 0.0)
    return np.where(unraised, np.abs(total), above(np.abs(total + lost)))


def _lost_by_product(x: Floats, y: Floats, product: Floats) -> Floats:
    """What rounding took from a product: exact, by splitting both factors (Dekker)."""
    # Halves of 26 bits, whose products are exact; powers of two are taken out first, so that nothing over- or underflows on the way.
    x, x_bits = np.frexp(x)
    y, y_bits = np.frexp(y)
    x_high, y_high = (x * 134217729.0) - (x * 134217729.0 - x), (y * 134217729.0) - (y * 134217729.0 - y)
    x_low, y_low = x - x_high, y - y_high
    scaled = np.ldexp(product, -(x_bits + y_bits))
    return np.ldexp(((x_high * y_high - scaled) + x_high * y_low + x_low * y_high) + x_low * y_low, x_bits + y_bits)


def _checked(name: str, value: ArrayLike, low: float) -> Floats:
    """Numbers as float64 arrays, or InputError."""
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "fiu" or raw.size == 0:
            raise TypeError
        values = raw.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{name} is {value!r}; it needs a real number or an array of them.", source=f"{name} of a step", remedy="pass a number."
        ) from None
    if not bool(np.all(np.isfinite(values) & (values >= low))):
        bad = values[~(np.isfinite(values) & (values >= low))].flat[0]
        needed = "a finite number" if low == -np.inf else f"a finite number >= {low:g}"
        raise InputError(f"{name} = {bad:g}; it needs {needed}.", source=f"{name} of a step", remedy="check its sign and its units.")
    return values


def _result(values: Floats) -> float | Floats:
    """A float for scalars, else the array."""
    return float(values) if values.ndim == 0 else values
