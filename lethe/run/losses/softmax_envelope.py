r"""Slopes of the Lipschitz envelope of softmax's cross-entropy, $l_c(s) = \min_t l(s - t) + c\|t\|$, of many records at once.

`softmax` calls it at each step of a run with the envelope clip method: gradients are then bounded by c without losing convexity. s are the
scores, y the record's class, c the bound on a slope (a derivative in the scores).

Where $\|l'(s)\| \le c$ the envelope is $l$. Elsewhere its slope is $l'(u) = \mathrm{softmax}(u) - e_y$ at the point u with
$u + a\,l'(u) = s$, $a > 0$ and $\|l'(u)\| = c$. With $p = \mathrm{softmax}(u)$ and the margins $m_j = s_j - s_y$ of the classes $j \ne y$,
largest at k, put $\rho_j = p_j/p_k$, $x = ap_k$, $P_1 = \sum\rho_j$, $P_2 = \sum\rho_j^2$ and $Q = P_1^2 + P_2$ (sums over $j \ne y$). Then

$$\log\rho_j + x\rho_j = m_j - m_k + x, \qquad
  F(x) = x(1 + P_1) + \log c + \log(\sqrt Q + cP_1) - \log((1 - c^2)P_1^2 + P_2) - m_k = 0,$$

and the slope is $c\rho_j/\sqrt Q$, and $-cP_1/\sqrt Q$ of the own class: of norm c whatever x and $\rho$ are. $F(0) < 0$ and $F' \ge 1$, so
there is one x. And whatever x and $\rho$ the search ends with, their slope is *exactly* the envelope's at scores that are off by $F$ in the
own class and by $r_j = \log\rho_j + x\rho_j - m_j + m_k - x$ in the others. So it is within $\sqrt2\,c\,(|F| + \sqrt{\sum\rho_jr_j^2})$ of
what was asked for, if no $|r_j|$ is above 1/2; this is measured, held below `ERROR` c, and paid for (docs/theory.md, Theorem 5d).

*One x.* With $w_j = x\rho_j$ and $h = x + \log x - m_k$ they read $w_j + \log w_j = m_j + h$ and $F = h - \log a + \sum w_j - \log(1 - r)$,
$a = \sqrt{(\sum w_j)^2 + \sum w_j^2}/c$, $r = \sum w_j/a$. In h, $w_j' = w_j/(1 + w_j) \le w_j$, so $(\log a)' \le 1$; the $w_j$ become
more equal, since large ones grow less, so r rises; and $(\sum w_j)' \ge x/(1 + x)$ where $dh/dx = 1 + 1/x$.

*The error.* The envelope's curvature is at most $\sqrt2c$, which gives the first term. Let $\Delta$ be the difference of the slopes $g, g'$
at scores r apart, $p = g + e_y$. Scores are $\log p + ag$ with $a \ge 0$ in the normal cone of the ball, up to a common shift, so by its
monotonicity $\langle\Delta, r\rangle \ge \sum\Delta_j(\log p_j - \log p'_j) \ge \sum\Delta_j^2/\bar p_j$, $\bar p_j = \max(p_j, p'_j)$.
With $E = \sum\bar p_jr_j^2$, Cauchy and Schwarz give $\langle\Delta, r\rangle \le E$, and $E \le \sum p_jr_j^2 + \frac12\sum|\Delta_j||r_j|
\le \sum p_jr_j^2 + \frac12E$. By convexity $\|\Delta\|^2 \le \sqrt2c\langle\Delta, r\rangle \le 2\sqrt2c\sum p_jr_j^2$; $p_j \le
c\rho_j/\sqrt2$.

Bounds between 1 and $\sqrt2$ count as 1: there the slope can depend on c as steeply as a root does.
"""

import math

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import FloatArray
from lethe.errors import LetheError

ERROR = 2.0**-34
"""How far, as a share of c, a slope that was searched for may be from the envelope's."""

_LONGEST = math.sqrt(2.0) * (1.0 + 2.0**-50)  # slope of softmax
_AT_ONCE = 1 << 14  # numbers
_JOINT_ROUNDS = 12  # six or seven are needed
_ROUNDS = 80  # halving leaves of a bracket of 10^5 less than a unit of rounding; Newton takes five or six
_UNIT = 2.0**-52
_ROOT = 2.0**-25  # a little above rounding of `_NONE`
_NONE = -1e8  # as good as minus infinity: what is so far behind has the share 0


def envelope_slopes(scores: FloatArray, targets: FloatArray, bounds: FloatArray) -> FloatArray:
    """$l_c'$ of every record, of norm at most c but for a few units of rounding.

    Scores have shape (n, K), targets (the classes) and bounds c > 0 (infinity: none) shape (n,).

    Raises:
        LetheError: scores so far apart that rounding hides where the envelope's slope lies.
    """
    true_entries = np.arange(len(scores)), targets.astype(np.intp)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        margins = scores - scores[true_entries][:, None]
        slopes = np.exp(margins - margins.max(axis=1, keepdims=True))
        slopes /= slopes.sum(axis=1, keepdims=True)
        slopes[true_entries] = 0.0
        slopes[true_entries] = -slopes.sum(axis=1)  # without cancellation where the own class is likely
        capped = np.where(bounds >= _LONGEST, np.inf, np.minimum(bounds, 1.0))
        (long,) = np.nonzero(np.einsum("nk,nk->n", slopes, slopes) > np.square(capped))
        margins[true_entries] = -np.inf
        size = max(_AT_ONCE // scores.shape[1], 1)
        for rows in (long[first : first + size] for first in range(0, len(long), size)):
            slopes[rows] = _searched(margins[rows], capped[rows], true_entries[1][rows])
    return slopes


def _searched(margins: FloatArray, bounds: FloatArray, labels: NDArray[np.intp]) -> FloatArray:
    """Slopes of records whose loss is steeper than its bound; the margins of their own classes are minus infinity."""
    top, other_classes = margins.max(axis=1), margins.shape[1] - 1
    behind: FloatArray = np.maximum(margins - top[:, None], _NONE)
    # F(x) > 2x + log c - log(others + 1) - top, since P_1 >= 1 and Q < (others + 1)^2.
    high: FloatArray = np.maximum(0.5 * (top + math.log(other_classes + 1.0) - np.log(bounds)), 0.0) + 1.0
    x, logs, settled = _newton(behind, bounds, top, np.minimum(np.maximum(0.5 * top, 0.0) + 0.5, high))
    (rest,) = np.nonzero(~settled)
    if rest.size:
        x[rest], logs[rest] = _bracketed(behind[rest], bounds[rest], top[rest], high[rest])
    shares = np.exp(logs)
    off = np.abs(logs + x[:, None] * shares - (behind + x[:, None]))
    value, _, root = _balance(shares, x, bounds, top)
    error: FloatArray = np.abs(value) + np.sqrt(np.einsum("nk,nk,nk->n", shares, off, off))
    _refuse_far(error, off, behind, shares, x, top)
    slopes = shares * (bounds / root)[:, None]
    slopes[np.arange(len(slopes)), labels] = -slopes.sum(axis=1)
    return slopes


def _newton(behind: FloatArray, bounds: FloatArray, top: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    r"""x and $\log\rho$ by Newton's method for all equations at once, from a start x, and for which records it has settled.

    Nothing keeps it inside a bracket, so that it may fail; it takes a third of the time of `_bracketed`, which does not.
    """
    constant = np.log(bounds) - top
    # The root of F for the shares that are guessed at the start, and the guess there.
    shares = np.exp(_guess(behind, x[:, None]))
    first = shares.sum(axis=1)
    gap = np.sqrt(first * first + np.einsum("nk,nk->n", shares, shares)) - bounds * first
    x = np.maximum((np.log(gap) - constant) / (1.0 + first), _ROOT)
    logs = _guess(behind, x[:, None])
    moved: FloatArray = np.full_like(x, np.inf)
    for _ in range(_JOINT_ROUNDS):
        wide = x[:, None]
        shares = np.exp(logs)
        weights = wide * shares
        off = logs + weights - (behind + wide)
        weights += 1.0
        first, second = shares.sum(axis=1), np.einsum("nk,nk->n", shares, shares)
        root = np.sqrt(first * first + second)
        gap = root - bounds * first  # (1 - c^2) P_1^2 + P_2 over sqrt(Q) + c P_1
        longer = 1.0 + first
        value = x * longer + constant - np.log(gap)
        # How F moves with each logarithm of a share, over 1 + x times the share.
        pulls = shares * ((x + (bounds - first / root) / gap)[:, None] - shares / (root * gap)[:, None]) / weights
        slope = longer + np.einsum("nk,nk->n", pulls, 1.0 - shares)
        step = (value - np.einsum("nk,nk->n", pulls, off)) / slope
        step = np.minimum(step, x)  # x is not negative
        change = (off + (1.0 - shares) * step[:, None]) / weights
        x, logs = x - step, np.minimum(logs - change, 0.0)
        # Where this step was about the root of rounding, rounding is all that the next one could mend.
        moved = np.maximum(np.abs(step), np.abs(change).max(axis=1))
        if moved.max() <= _ROOT:
            break
    return x, logs, moved <= _ROOT


def _bracketed(behind: FloatArray, bounds: FloatArray, top: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""x and $\log\rho$ by Newton's method for x, inside a bracket from 0 to `high`, with $\log\rho$ found anew for each x."""
    low: FloatArray = np.zeros_like(top)
    x: FloatArray = np.minimum(np.maximum(0.5 * top, 0.0) + 0.5, high)
    logs = _guess(behind, x[:, None])
    for _ in range(_ROUNDS):
        logs, shares = _shares(behind, x[:, None], logs)
        value, slope, _ = _balance(shares, x, bounds, top)
        above = value > 0.0
        low, high = np.where(above, low, x), np.where(above, x, high)
        step = value / slope
        settled = np.abs(step) <= 4.0 * _UNIT * (4.0 + x)
        if settled.all():
            break
        newton = np.where(settled, x, x - step)
        moved = np.where(settled | ((newton > low) & (newton < high)), newton, 0.5 * (low + high))
        logs = logs + (1.0 - shares) / (1.0 + x[:, None] * shares) * (moved - x)[:, None]
        x = moved
    return x, _shares(behind, x[:, None], logs)[0]


def _guess(behind: FloatArray, x: FloatArray) -> FloatArray:
    r"""$\log\rho$ by the asymptotes of Wright's omega function."""
    wright = behind + x + np.log(x)
    return np.where(wright > 1.0, np.log(wright - np.log(wright)) - np.log(x), np.minimum(behind + x, 0.0))


def _shares(behind: FloatArray, x: FloatArray, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""$\log\rho$ and $\rho$, by Newton's method from `logs`; the function is convex and increasing, so that any start will do."""
    right = behind + x
    near = 4.0 * _UNIT * (8.0 + x - behind)
    for _ in range(_ROUNDS):
        weights = x * np.exp(logs)
        off = logs + weights - right
        if (np.abs(off) <= near).all():
            break
        logs = np.minimum(logs - off / (1.0 + weights), 0.0)
    return logs, np.exp(logs)


def _balance(shares: FloatArray, x: FloatArray, bounds: FloatArray, top: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""$F$, its derivative and $\sqrt Q$."""
    first, second = shares.sum(axis=1), np.einsum("nk,nk->n", shares, shares)
    root, remainder = np.sqrt(first * first + second), (1.0 - bounds) * (1.0 + bounds)
    steep, likely = root + bounds * first, remainder * first * first + second
    value = x * (1.0 + first) + (np.log(bounds * steep / likely) - top)
    moved = shares * (1.0 - shares) / (1.0 + x[:, None] * shares)  # of the shares where x moves
    first_moved, half_second_moved = moved.sum(axis=1), np.einsum("nk,nk->n", moved, shares)
    slope = 1.0 + first + x * first_moved
    slope += ((first * first_moved + half_second_moved) / root + bounds * first_moved) / steep
    slope -= 2.0 * (remainder * first * first_moved + half_second_moved) / likely
    return value, np.maximum(slope, 1.0), root


def _refuse_far(error: FloatArray, off: FloatArray, behind: FloatArray, shares: FloatArray, x: FloatArray, top: FloatArray) -> None:
    """Refuse what is farther off than is paid for, or may be, for all that rounding lets one see of F and r."""
    terms = 4.0 + x[:, None] - behind
    size = 4.0 + np.abs(top) + x * (1.0 + shares.sum(axis=1))  # of the terms of F
    unseen = _UNIT * (8.0 * size + behind.shape[1] + 2.0 * np.sqrt(np.einsum("nk,nk,nk->n", shares, terms, terms)))
    if (math.sqrt(2.0) * (error + unseen)).max() <= 0.5 * ERROR and off.max() <= 0.5:  # and no nan
        return
    raise LetheError(
        "a record's scores are so far apart that rounding hides the slope of its envelope.",
        source="clip_method = envelope; scores that differ by thousands: the training diverges, or the start is far away",
        remedy="take smaller steps or features of smaller norm, start nearer to 0, or use clip_method: clip.",
    )
