r"""Lowy & Razaviyayn 2023, Appendix C: how far gradient descent with wrong gradients ends from the minimiser, in mean square.

$w_t = \Pi(w_{t-1} - \frac{\nabla F(w_{t-1}) + e_t}{\lambda + L})$ on a $\lambda$-strongly convex, L-smooth F with $\nabla F(w^*) = 0$ and
$E\|e_t\|^2 \le G^2$; R is the distance at the start, T the number of steps.
"""

import math

from lethe.calculus.domains import require_count, require_nonnegative, require_positive


def contraction(smoothness: float, strong_convexity: float) -> float:
    r"""$\frac L{\lambda+L}$, attained at curvature $\lambda$; (7) has the larger $1 - \frac{\lambda L}{(\lambda+L)^2}$."""
    return smoothness / (smoothness + strong_convexity)


def squared_distance(steps: int, smoothness: float, strong_convexity: float, distance: float, error: float) -> float:
    r"""$E\|w_T - w^*\|^2 \le \big(q^TR + (1 - q^T)\frac G\lambda\big)^2$, $q = \frac L{\lambda+L}$; attained by a constant error.

    Proof: $\|w_t - w^*\| \le q\|w_{t-1} - w^*\| + \frac{\|e_t\|}{\lambda+L}$ for every draw; the triangle inequality of
    $(E\|\cdot\|^2)^{1/2}$, over all steps. So the bound that Kamath, Liu & Zhang drew from $E\|w_T - w^*\|$ by Jensen's inequality the
    wrong way round holds if $G^2$ bounds the errors' mean square, as here, and the repair needs neither T nor another $\kappa_f$.

    T steps; L >= $\lambda$ > 0; R; G. In squared parameter units.
    """
    count, strong = require_count("steps", steps, low=0), require_positive("strong_convexity", strong_convexity)
    shrunk = contraction(smoothness, strong) ** count
    return (shrunk * require_nonnegative("distance", distance) + (1.0 - shrunk) * require_nonnegative("error", error) / strong) ** 2


def excess_risk(steps: int, smoothness: float, strong_convexity: float, distance: float, error: float) -> float:
    r"""$E F(w_T) - F^* \le \frac L2$ of that: $\kappa_fG^2/(2\mu)$ as T grows, where (9) has $\kappa_f^2G^2$ and, by (8)'s own proof, means
    $\kappa_fG^2/\mu$ with a logarithm."""
    return 0.5 * smoothness * squared_distance(steps, smoothness, strong_convexity, distance, error)


def printed_squared_distance(
    steps: int, smoothness: float, strong_convexity: float, distance: float, error: float, *, mended: bool = False
) -> float:
    r"""$2a^{2T}R^2 + T\sum_{t<T}a^{2t}\frac{G^2}{(\lambda+L)^2}$, $a = 1 - \frac{2\lambda L}{(\lambda+L)^2}$, as printed after (7): false.

    Its $a$ is not that of (7), whose iteration has one $\lambda L$; and $(u + v)^2 \le 2u^2 + 2v^2$ leaves a 2 before the sum.
    `mended`: both.
    """
    factor = 1.0 if mended else 2.0
    a = 1.0 - factor * strong_convexity * smoothness / (strong_convexity + smoothness) ** 2
    total = steps * math.fsum(a ** (2 * t) for t in range(steps)) * (error / (strong_convexity + smoothness)) ** 2
    return 2.0 * a ** (2 * steps) * distance**2 + (2.0 if mended else 1.0) * total
