r"""A lower bound on $\mu$ from one run with many canaries, if the mechanism's trade-off curve is Gaussian."""

from __future__ import annotations

from scipy import special

from lethe.audit.statistics.counts import Guesses
from lethe.audit.statistics.inputs import lowered, require_level
from lethe.audit.statistics.one_run import require_guesses
from lethe.calculus.crossing import crossing
from lethe.calculus.domains import require_nonnegative


def gaussian_guesses_refuted(guesses: Guesses, *, mu: float, level: float) -> bool:
    r"""Whether so many right guesses have probability at most $\alpha$ under $\mu$-GDP.

    With c of c' guesses right among m canaries, $g(x) = \Phi(\Phi^{-1}(x) - \mu)$, $r = \alpha c/m$ and $h = \alpha(c'-c)/m$, for i
    from c - 1 down to 0:

    $$h' = \max\{h, g(r)\}, \qquad r \leftarrow \min\left\{1,\ r + \frac{i}{c'-i}(h' - h)\right\}, \qquad h \leftarrow h'$$

    and $\mu$ is refuted if $r + h > c'/m$. A larger $\mu$ lowers g, and every r and h with it.

    Args:
        guesses: the counts, with the same guarantee as for `one_run_p_value`.
        mu: $\mu \ge 0$, finite.
        level: $\alpha$ from 1e-12 to 1/2.
    Raises:
        InputError: an argument is outside its range.
    Reference: Mahloujifar, Melis, Chaudhuri 2024, arXiv:2410.22235, Algorithm 3.
    """
    counts, distance, chance = require_guesses(guesses), require_nonnegative("mu", mu, allow_infinity=False), require_level(level)
    right, total, canaries = counts.correct, counts.guessed, counts.canaries
    rising = chance * right / canaries
    held = chance * (total - right) / canaries
    needed = total / canaries * (1.0 + 1e-10)
    for index in range(right - 1, -1, -1):
        new = max(held, float(special.ndtr(special.ndtri(rising) - distance)))
        rising = min(1.0, rising + index / (total - index) * (new - held))
        held = new
        # Neither ever shrinks.
        if rising + held > needed:
            return True
    return False


def one_run_gaussian_mu(guesses: Guesses, *, level: float) -> float:
    r"""The $\mu$ below which the guesses are refuted, rounded down; 0 if none. Args, Raises: as `gaussian_guesses_refuted`."""

    def gap(mu: float) -> float:
        return -1.0 if gaussian_guesses_refuted(guesses, mu=mu, level=level) else 1.0

    if gap(0.0) > 0.0:
        return 0.0
    passing, failing = 0.0, 1.0
    while gap(failing) <= 0.0:
        passing, failing = failing, 2.0 * failing
    return lowered(crossing(gap, failing, passing, resolution=1e-9))
