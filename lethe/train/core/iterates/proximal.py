r"""The exact proximal step of ridge, l1, elastic net and ball, alone or added up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from lethe.errors import InputError
from lethe.run.regularisers import L1, Ball, ElasticNet, Regulariser, Ridge
from lethe.train.core.iterates.projection import onto_ball

Proximal = Callable[[torch.Tensor, float], torch.Tensor]


def proximal_step(regularisers: Sequence[Regulariser]) -> Proximal:
    r"""$y \mapsto \mathrm{prox}_{\lambda h}(y) = \arg\min_x h(x) + \frac{1}{2\lambda}\|x-y\|^2$ for the sum $h$ of the regularisers.

    h acts on all parameters together, the intercept's included: that is what a certificate's contraction and diameter are about.

    Args:
        regularisers: ridge, l1, elastic_net and ball, any number of each; none: the identity.
    Returns:
        A function of the parameters (any shape) and the step size $\lambda > 0$.
    Raises:
        InputError: another regulariser.
    Reference: order of the parts: Yu 2013, "On decomposing the proximal map", NeurIPS, Theorem 4.
    """
    threshold = ridge = 0.0
    radius = math.inf
    for part in regularisers:
        if isinstance(part, L1):
            threshold += part.strength
        elif isinstance(part, Ridge):
            ridge += part.strength
        elif isinstance(part, ElasticNet):
            threshold += part.l1_strength
            ridge += part.ridge_strength
        elif isinstance(part, Ball):
            radius = min(radius, part.radius)
        else:
            raise InputError(
                f"regulariser.kind: got {part.kind}; the trainer's proximal steps are ridge, l1, elastic_net and ball.",
                source="regulariser",
                remedy="use one of these; bound the parameters by a ball instead of a box or simplex.",
            )

    # Soft threshold, then shrink, then ball is the prox of the sum, not only a sequence of three: let u = soft(y), so y - u lies in
    # the subdifferential of lambda k |.|_1 at u. That subdifferential is the same at c u for every c > 0 (|.|_1 is positively
    # homogeneous), and shrinking and projecting only multiply by such a c. So it is the l1 part of the optimality condition at the
    # result, while the rest of the displacement is radial and belongs to the ridge and to the normal cone of the ball.
    def step(parameters: torch.Tensor, step_size: float) -> torch.Tensor:
        if threshold > 0:
            parameters = torch.nn.functional.softshrink(parameters, step_size * threshold)
        if ridge > 0:
            parameters = parameters / (1.0 + step_size * ridge)
        if radius < math.inf:
            parameters = onto_ball(parameters.reshape(1, -1), radius)[0].view_as(parameters)
        return parameters

    return step
