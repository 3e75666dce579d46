r"""Double clipping: each record's gradient is clipped, and so is something else. What else decides what can be certified.

In the paper it is the iterate, projected on a bounded set: $x_t = \Pi_K(x_{t-1} - \lambda(g_t + \zeta_t))$ with $g_t$ the mean of the
clipped gradients. That is the proximal step of the indicator of K, which `fit` takes of a run with a ball, box or simplex; it projects the
start as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from lethe.calculus.domains import require_positive
from lethe.run.regularisers import Ball
from lethe.train.core.proximal import NetworkProximal, ProximalGroup


def clip_mean(gradients: Iterable[Tensor], bound: float) -> None:
    r"""In place: $g \leftarrow \arg\min_u\{\|u - g\| : \|u\| \le B\}$ for the mean (or the sum) of the clipped gradients, before the noise.

    A projection is nonexpansive: if one record moves g by at most s, it moves the result by at most $\min(s, 2B)$, and composition
    applies as before. But the step is then a product of two clippings with a Hessian, whose Lipschitz constant no theorem here bounds:
    nothing is certified of the last iterate alone.

    Args:
        gradients: the tensors of g.
        bound: B, from 1e-30 to 1e140, in the units of g.
    Raises:
        InputError: an argument is outside its range.
        LetheError: the gradient is not finite.
    """
    named = {str(place): gradient for place, gradient in enumerate(gradients)}
    NetworkProximal(named, [ProximalGroup(regularisers=(Ball(radius=require_positive("bound", bound)),))]).step(1.0)
