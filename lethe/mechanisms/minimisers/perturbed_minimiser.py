r"""The privacy profile of a minimiser whose objective was tilted by Gaussian noise: what `objective_perturbation` costs.

The setting: $J(w) = \sum_i f_i(w) + \frac\Lambda2\|w\|^2 + \langle b, w\rangle$ with $b \sim N(0, \sigma^2I)$; its minimiser w is released.
The $f_i$ are convex with Lipschitz gradients, functions of the scores $W^\top u_i$. So $b(w) = -\sum\nabla f_i(w) - \Lambda w$ is one to
one, Lipschitz with a Lipschitz inverse, and w has the density $\varphi_\sigma(b(w))\det(\Lambda I + \sum\nabla^2f_i(w))$ (area formula;
Hessians need to exist almost everywhere only, which covers Huber's loss and the smoothed hinge).

Take two data sets that differ in one record, f against $\tilde f$ (0 when it is zeroed out), and share the rest, with Hessian H'.
With $v = \nabla f(w) - \nabla\tilde f(w)$, what is $b = b(w)$ under the first is $b + v$ under the second. The privacy loss is

$$\ell = \log\frac{\det(\Lambda I + H' + \nabla^2f)}{\det(\Lambda I + H' + \nabla^2\tilde f)}
  + \frac{2\langle b, v\rangle + \|v\|^2}{2\sigma^2},\qquad b \sim N(0, \sigma^2I)\text{ under the first.}$$

1. *Determinants.* The eigenvalues $h_j$ of $\nabla^2f$, at most r of them, add up to at most T. The first term is at most
   $\log\det(I + (\Lambda I+H')^{-1}\nabla^2f) \le \sum_j\log(1+h_j/\Lambda) \le c = r\log(1 + T/(r\Lambda))$; and at most 0 where f = 0.
2. *Vertices.* v lies in the convex hull of 0 and finitely many vectors $v_j$ that the two records fix, and the second term is convex in
   v. So $\ell \le c + \max(0, x_1, x_2, \dots)$ with $x_j = (2\langle b, v_j\rangle + \|v_j\|^2)/(2\sigma^2)$, which has the law of the
   loss of a Gaussian mechanism with $\mu_j = \|v_j\|/\sigma$. The positive part of a maximum is at most the sum of the positive parts:
   $$\delta(\epsilon) \le \sum_j\delta_{\mu_j}(s)\ \text{ for }s = \epsilon - c \ge 0,\qquad
     \delta(\epsilon) \le 1 - e^s\Big(1 - \sum_j\delta_{\mu_j}(0)\Big)\ \text{ for }s < 0,$$
   the latter by $(1 - e^{s-x})_+ \le 1 - e^s + e^s(1-e^{-x})_+$.
3. *Slopes of both signs.* Huber's loss has $v = au$, $|a| \le B$, with the vertices $Bu$ and $-Bu$. In the direction that takes the
   record away one of them is enough: the score $\langle w, u\rangle$ falls as $t = \langle b, u\rangle$ grows, and so does the slope a. If
   $a \ge 0$ at t = 0, then for $t < 0$ as well, where $ta + a^2\|u\|^2/2$ is at most its larger value at a = 0 and a = B; for $t \ge 0$
   its largest value over $|a| \le B$ is that at B. If a < 0 there, the same holds with -B. This is decided by the other coordinates
   of b, which are independent of t.
4. *Solver.* The release is $\tilde w + N(0, \tau^2I)$ with $\|\tilde w - w\| \le \eta$. Given w it is a Gaussian mechanism with
   $\nu \le 2\eta/\tau$, whose loss adds to $\ell$: every $\mu_j$ becomes $\sqrt{\mu_j^2+\nu^2}$, and 0 a vertex with $\nu$.

The classical analysis needs $\Lambda \ge 2\beta/\epsilon$ and a tail bound on $\langle b, v\rangle$; the exact one by Redberg et al. counts
both signs of $\langle b, v\rangle$, a factor 2, for zeroing out. Step 2 needs none for slopes of one sign, step 3 none in one direction.

Reference: Kifer, Smith, Thakurta 2012, COLT; Iyengar et al. 2019; Redberg, Koskela, Wang 2023, arXiv:2401.00583 (statements rederived).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from lethe.calculus.domains import outside, require_nonnegative, require_positive
from lethe.calculus.perturbed_minimiser import PerturbedMinimiser
from lethe.calculus.rounding import round_up
from lethe.documents.synonyms import in_other_words
from lethe.run.losses import Softmax, TruncatedSoftmax
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Neighbours

# Vertices with their lengths in units of the largest gradient, and how many there are; with or without the determinants of step 1.
Vertices = tuple[bool, tuple[tuple[float, int], ...]]
_CELLS = 32  # of the angle between two records' features


def log_determinant(loss: LinearLoss, *, ridge: float) -> float:
    r"""$c = r\log(1 + T/(r\Lambda))$, rounded up.

    Args:
        loss: gives r and $T = R^2\,\mathrm{tr}\,l''$.
        ridge: $\Lambda > 0$, of the sum of the losses.
    """
    radius = loss.row_norm
    rank, trace = loss.curvature_rank, radius * radius * loss.curvature_trace
    return round_up(rank * math.log1p(trace / (rank * require_positive("ridge", ridge))), 4e-15)


def ridge_for(loss: LinearLoss, *, determinant: float) -> float:
    r"""The $\Lambda$ at which `log_determinant` is `determinant` > 0, up to rounding: $T/(r(e^{c/r}-1))$."""
    radius = loss.row_norm
    rank, trace = loss.curvature_rank, radius * radius * loss.curvature_trace
    return trace / (rank * math.expm1(require_positive("determinant", determinant) / rank))


@in_other_words
def minimiser_profile(
    loss: LinearLoss, *, ridge: float, noise_std: float, solver_mu: float, neighbours: Neighbours = "replace_one"
) -> PerturbedMinimiser:
    r"""The guarantee of the module's first lines.

    Args:
        loss: l, with the bound R on the norm of the rows.
        ridge: $\Lambda > 0$, of the sum of the losses.
        noise_std: $\sigma > 0$, of b, in units of one record's gradient.
        neighbours: replace_one or zero_out.
        solver_mu: $\nu = 2\eta/\tau \ge 0$ of step 4; 0 for the exact minimiser.
    Raises:
        InputError: an argument is out of its range.
    """
    # What underflows is not 0.
    largest = max(loss.row_gradient_bound / require_positive("noise_std", noise_std), 5e-324)
    extra = require_nonnegative("solver_mu", solver_mu, allow_infinity=False)
    determinant = log_determinant(loss, ridge=ridge)
    still = ((extra, 1),) if extra > 0.0 else ()
    cases = (
        (
            determinant if curved else 0.0,
            (*((round_up(math.hypot(length * largest, extra), 1e-15), count) for length, count in vertices), *still),
        )
        for curved, vertices in gradient_vertices(loss, neighbours)
    )
    return PerturbedMinimiser(tuple(cases))


def gradient_vertices(loss: LinearLoss, neighbours: Neighbours) -> tuple[Vertices, ...]:
    r"""The vertices of step 2, with lengths in units of the gradient bound G, one list for each case that could be the worst.

    - One score, slope of one sign: g; when replaced g, -g' and g - g', the last at most 2 long.
    - One score, slope of both signs: step 3; when replaced $\pm g \pm g'$, two of squared length 4p and two of 4(1-p) for some p, covered
      in cells of p, with the larger end of each.
    - Softmax, $G = \sqrt2R$: $u\otimes(e_j - e_y)$, K - 1 of length 1; when replaced, differences of two of them as well. For equal
      classes $\|u\otimes r - u'\otimes r'\|^2 \le R^2(4 + 2\langle r, r'\rangle)$ is 8 for the K - 1 pairs with j = j', 6 for the others;
      for different classes one pair reaches 8 and no other more than 6. Truncated, all of it times the cut.

    Raises:
        InputError: another relation, or a loss with several scores that is not softmax.
    """
    if neighbours not in ("replace_one", "zero_out"):
        raise outside("neighbours", neighbours, "replace_one or zero_out: the number of records is public here")
    replaced = neighbours == "replace_one"
    if isinstance(loss, Softmax | TruncatedSoftmax):
        others = loss.target_classes - 1
        if not replaced:
            return ((True, ((1.0, others),)),)
        pairs = ((2.0, others), (math.sqrt(3.0) * (1.0 + 2.0**-50), others * (others - 1)), (1.0, 2 * others))
        return ((True, tuple(pair for pair in pairs if pair[1] > 0)),)
    if loss.outputs > 1:
        raise outside("loss", loss, "a loss with one score, or Softmax(classes)")
    if loss.one_sided:
        return ((True, ((2.0, 1), (1.0, 2)) if replaced else ((1.0, 1),)),)
    if not replaced:
        return ((True, ((1.0, 1),)), (False, ((1.0, 2),)))
    edges = np.linspace(0.5, 1.0, _CELLS + 1).tolist()
    return tuple(
        (True, ((round_up(2.0 * math.sqrt(high)), 2), (round_up(2.0 * math.sqrt(max(1.0 - low, 0.0))), 2))) for low, high in pairwise(edges)
    )
