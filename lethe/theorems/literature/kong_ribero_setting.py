r"""Kong & Ribero, privacy of the last iterate of DP-SGD on weakly convex losses (arXiv:2407.05237): what both versions of the paper share.

`kong_ribero_2024` and `kong_ribero_2025` build their theorems from this; both are kept to compare (`lethe.compare`), and `certify` tries
them only if asked by name.

The closed forms are functions of the papers' own letters, vectorised over all of them, and give $\rho$ of $\epsilon(\alpha) = \rho\alpha$;
where a step size is beyond what a theorem allows they give infinity. A letter outside its range is an InputError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lethe.calculus.guarantees import ZCDP
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation, StepConstant
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.theorems import requirements as require
from lethe.theorems.base import SOUND, Standing

FloatArray = NDArray[np.float64]
Version = Literal["first", "revised"]

# Every product and quotient of the closed forms and of the run's own arrays, with room to spare.
_ROUNDING = 1e-14
_SMALLEST = 5e-324

GAP = Standing(soundness="proof-gap", why="its proof takes a clipped step to be L_lambda-Lipschitz, which it is not")
SAME_ORDER = ("cyclic", "shuffled_once", "full")
EXACT_SIZE = (*SAME_ORDER, "shuffled", "without_replacement")

FIRST = Citation(
    key="kong-ribero-2024",
    text="Kong, Ribero 2024, Privacy of the last iterate in cyclically-sampled DP-SGD on nonconvex composite losses, "
    "arXiv:2407.05237, first version (July 2024)",
)
SECOND = Citation(
    key="kong-ribero-2025",
    text="Kong, Ribero 2025, Privacy of the last iterate in cyclically-traversed DP-SGD on nonconvex composite losses, "
    "arXiv:2407.05237, revised version",
)


def cited(paper: Citation, where: str) -> Citation:
    """The paper, at one of its theorems."""
    return Citation(key=paper.key, text=f"{paper.text}, {where}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Letters:
    r"""What the closed forms are functions of: finite numbers, or arrays that broadcast.

    $\lambda > 0$; $C > 0$, without clipping the bound on every gradient; $b \ge 1$; $\sigma > 0$, in parameter units; m, a negative one
    (strong convexity) read as 0, the least the paper has; $M \ge 0$; $T \ge 1$; $\ell \ge 1$ steps a pass.
    """

    step_size: Any
    clip_norm: Any
    noise_std: Any
    batch_size: Any = 1.0
    weak_convexity: Any = 0.0
    smoothness: Any = 0.0
    steps: Any = 1.0
    steps_per_pass: Any = 1.0

    def __post_init__(self) -> None:
        for name in ("step_size", "clip_norm", "noise_std"):
            object.__setattr__(self, name, checked(name, getattr(self, name), above=0.0))
        for name in ("batch_size", "steps", "steps_per_pass"):
            object.__setattr__(self, name, checked(name, getattr(self, name), low=1.0))
        object.__setattr__(self, "weak_convexity", np.maximum(checked("weak_convexity", self.weak_convexity), 0.0))
        object.__setattr__(self, "smoothness", checked("smoothness", self.smoothness, low=0.0))

    @classmethod
    def of(cls, run: Run) -> Letters:
        r"""Those of a run's last step; C is halved under zero_out, where a touch is $\lambda C/b$ and not $2\lambda C/b$."""
        weak_convexity, smoothness = curvature(run)
        return cls(
            step_size=float(run.step_sizes[-1]),
            clip_norm=max(run.record_bound * (0.5 * run.touch_factor), _SMALLEST),
            batch_size=run.batch_size,
            noise_std=float(run.noise_stds[-1]),
            weak_convexity=weak_convexity,
            smoothness=smoothness,
            steps=run.total_steps,
            steps_per_pass=run.steps_per_pass,
        )

    @property
    def passes(self) -> FloatArray:
        r"""$E = \lfloor T/\ell\rfloor$."""
        return np.floor_divide(self.steps, self.steps_per_pass)

    @property
    def touch(self) -> FloatArray:
        r"""$s/\sigma = 2\lambda C/(b\sigma)$: how far one step on the record moves the iterate, in units of the noise of one step."""
        with np.errstate(over="ignore"):
            moved = 2.0 * self.step_size * (self.clip_norm / self.batch_size)
            return moved / self.noise_std

    def log_square(self, version: Version) -> FloatArray:
        r"""$\log L_\lambda^2$, exact to rounding even where $L_\lambda$ is a few roundings from 1.

        $$L_\lambda = \sqrt{1 + 2\lambda m\left[1 + \frac{m}{M+m}\right]},\qquad
          L_\lambda = \sqrt{1 + 2\lambda m\left[1 + \frac{m}{2(M+m)}\right]}$$

        of the first version, equation (12), stated there with clipping, which is wrong; and of the revised one, equation (13), for
        $\lambda \le 1/(m+M)$ without clipping ($\sqrt2 L_\lambda$ with). Never below the exact constant,
        `lethe.theorems.lipschitz.plain_step`.
        """
        weak = self.weak_convexity
        half = 0.5 * weak + 0.5 * self.smoothness
        share = 0.5 * weak / np.where(half > 0.0, half, 1.0)
        with np.errstate(over="ignore"):
            return np.log1p(self.step_size * weak * (2.0 + (2.0 if version == "first" else 1.0) * share))

    def lipschitz(self, version: Version) -> FloatArray:
        r"""$L_\lambda \ge 1$."""
        return np.exp(0.5 * self.log_square(version))

    def where_allowed(self, rho: FloatArray, times: float = 1.0) -> FloatArray:
        r"""$\rho$ where the step size is at most so many times the `step_limit`, else infinity."""
        return np.where(self.step_size <= times * step_limit(self.weak_convexity, self.smoothness), rho, np.inf)

    def one_step_rho(self, apart: ArrayLike) -> FloatArray:
        r"""$\rho = \frac12(\text{apart}/\sigma + s/\sigma)^2$ of one noisy step of two runs that were so far apart, in parameter units."""
        distance = np.asarray(apart, dtype=np.float64)
        checked("apart", np.where(np.isposinf(distance), 0.0, distance), low=0.0)
        with np.errstate(over="ignore"):
            return 0.5 * np.square(distance / self.noise_std + self.touch)


def step_limit(weak_convexity: ArrayLike, smoothness: ArrayLike) -> FloatArray:
    r"""$1/(2(m+M))$, the largest step size of most of the theorems; infinity for linear losses."""
    with np.errstate(divide="ignore", over="ignore"):
        total = checked("smoothness", smoothness, low=0.0) + np.maximum(checked("weak_convexity", weak_convexity), 0.0)
        return np.asarray(0.5 / total, dtype=np.float64)


def theta(squared: ArrayLike, steps: ArrayLike) -> FloatArray:
    r"""Fraction of one touch's squared privacy loss that is left after `steps` noisy steps.

    $$\theta_L(s) = \frac{L^{2(s-1)}}{\sum_{j<s} L^{2j}} = \frac{1-L^{-2}}{1-L^{-2s}}, \qquad \theta_L(0) = 0$$

    $1/s$ at $L = 1$; tends to $1-L^{-2}$ for $L > 1$ and to 0 for $L < 1$ as s grows. `squared` is $\log L^2$, L the Lipschitz constant of
    one step without noise: here an error of a rounding costs no more than a rounding. $s \ge 0$ counts from the touch to the release, the
    touching step included. The shapes broadcast. Reference: Kong & Ribero, arXiv:2407.05237, equation (6) of the first version, (15) of the
    revised one; smooth through L = 1.
    """
    q, s = np.broadcast_arrays(np.asarray(squared, dtype=np.float64), checked("steps", steps, low=0.0))
    count = np.maximum(s, 1.0)
    size = np.where(q == 0.0, 1.0, np.abs(q))
    # (1 - e^-q) / (1 - e^-sq) for q > 0; for q < 0 the same after both sides are turned over, so that nothing overflows.
    ratio = np.expm1(-size) / np.expm1(-count * size) * np.exp(np.minimum(q, 0.0) * (count - 1.0))
    return np.where(s == 0.0, 0.0, np.where(q == 0.0, 1.0 / count, ratio))


def checked(name: str, values: ArrayLike, *, low: float = -np.inf, above: float = -np.inf) -> FloatArray:
    """Finite numbers as an array, or InputError.

    None may be below `low`, and every one is larger than `above`.
    """
    try:
        raw = np.asarray(values)
        array = raw.astype(np.float64) if raw.dtype.kind in "iuf" and raw.size else None
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is not None and bool(np.all(np.isfinite(array) & (array >= low) & (array > above))):
        return array
    needed = f"finite numbers > {above:g}" if above > -np.inf else "finite numbers" + (f" >= {low:g}" if low > -np.inf else "")
    raise InputError(f"{name} = {values!r}; it needs {needed}.", source=f"the argument {name}", remedy="check its sign and its units.")


def curvature(run: Run) -> tuple[float, float]:
    """(m, M) as the papers have them, both at least 0; (0, 0) where nothing is known, which `smooth` refuses."""
    weak_convexity, smoothness = run.loss.curvature or (0.0, 0.0)
    return max(weak_convexity, 0.0), smoothness


def zcdp(rho: FloatArray) -> ZCDP:
    """The guarantee, rounded up; a rho that underflowed is not 0."""
    return ZCDP(round_up(max(float(rho), _SMALLEST), _ROUNDING))


def step_constant(run: Run, version: Version, name: str = "", factor: float = 1.0) -> StepConstant:
    """The step constant of a paper, as certificates show it.

    Of the last step; `name` is of the formula, empty for that of the version; `factor`, >= 1, multiplies it.
    """
    what = name or f"L_lambda of equation ({12 if version == 'first' else 13})"
    return StepConstant(
        constant=round_up(factor * float(Letters.of(run).lipschitz(version)), _ROUNDING), certificate=f"{run.loss.summary}, {what}"
    )


def unless_clipped(run: Run) -> Standing:
    r"""Sound where clipping never acts; else a step need not be $L_\lambda$-Lipschitz."""
    return GAP if run.clips else SOUND


def one_step(run: Run) -> tuple[Finding, ...]:
    """Hypotheses of the bounds that look at the last step only: they hold for any earlier step, schedule and order."""
    return (
        require.last_iterate(run),
        require.relation(run, ("replace_one", "zero_out")),
        require.design(run, EXACT_SIZE, "every batch holds exactly the nominal number of records"),
        require.gradient_bound(run),
        require.smooth(run),
        require.noise_at_the_end(run),
    )


def several_passes(run: Run) -> tuple[Finding, ...]:
    """Hypotheses of the bounds that follow the record through several passes."""
    return (
        require.last_iterate(run),
        require.relation(run, ("replace_one", "zero_out")),
        require.design(run, SAME_ORDER, "the same batches in the same order every pass; worst batch"),
        require.gradient_bound(run),
        require.smooth(run),
        require.constant_noise_and_step(run),
    )


def small_steps(run: Run, times: float = 1.0) -> Finding:
    r"""Every step size at most `times` $1/(2(m+M))$."""
    name = "1/(2(m + M))" if times == 1.0 else "1/(m + M)"
    return require.step_at_most(run, times * float(step_limit(*curvature(run))), name)


def small_last_step(run: Run) -> Finding:
    r"""The last step size at most $1/(2(m+M))$."""
    limit, last = float(step_limit(*curvature(run))), float(run.step_sizes[-1])
    if last <= limit:
        return holds("step size", f"last step {last:.6g} <= 1/(2(m + M)) = {limit:.6g}")
    return fails(
        "step size",
        f"it needs a last step size <= 1/(2(m + M)) = {shown_down(limit, 6)}; it is {shown(last, 6)}",
        source="step_size",
        remedy="take smaller steps, or use optimal-shift, which has no such limit.",
    )


def one_full_pass(run: Run) -> Finding:
    r"""$T \ge \ell$."""
    steps, needed = run.total_steps, run.steps_per_pass
    if steps >= needed:
        return holds("passes", f"{steps} steps, at least one pass of {needed}")
    return fails(
        "passes",
        f"it needs at least one whole pass of {needed} steps; there are {steps}",
        source=f"steps = {steps}",
        remedy="use optimal-shift, which takes any number of steps.",
    )
