r"""Double clipping: each record's gradient is clipped, and so is something else. What else decides what can be certified.

In the paper it is the iterate, projected on a bounded set: $x_t = \Pi_K(x_{t-1} - \lambda(g_t + \zeta_t))$ with $g_t$ the mean of the
clipped gradients. That is the proximal step of the indicator of K, so the recursion of a `Run` with a ball, box or simplex.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from lethe.calculus.domains import require_positive
from lethe.run.regularisers import Ball
from lethe.train.core.proximal import NetworkProximal, ProximalGroup


def projected_iterate(parameters: Mapping[str, Tensor], diameter: float) -> NetworkProximal:
    r"""DPSGD-DC's second clipping: after the noise, $x \leftarrow \arg\min_u\{\|u - x\| : \|u\| \le D/2\}$ over all parameters.

    Args:
        parameters: name -> tensor.
        diameter: $D > 0$, of the domain.
    Returns:
        A proximal step; record the run with `regulariser=Ball(radius=D/2)`.
    Raises:
        InputError: an argument is outside its range.
    Reference: Liang, Zhang, He, Wu, Xing, "An improved privacy and utility analysis of DPSGD with bounded domain and smooth losses",
        Algorithm 1.
    """
    return NetworkProximal(parameters, [ProximalGroup(regularisers=(Ball(radius=require_positive("diameter", diameter) / 2),))])


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
