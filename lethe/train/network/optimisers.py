r"""What may be certified of a network that an optimiser trained on noisy mean gradients.

Whatever an optimiser makes of noisy gradients is post-processing, so composition ("all") covers every optimiser that sees the private
data through them alone. Only one has the certified recursion $x_t = \mathrm{prox}(x_{t-1} - \lambda(g_t + \zeta_t))$, whose last iterate
("last") may be certified as such: SGD without any memory.

**Weight decay in SGD** is the gradient of a ridge inside the step, $x \mapsto (1-\lambda\kappa)x - \lambda g(x) + \nu$. The sensitivity is
that of g, since the decay does not depend on the data, and the recursion holds with another constant. For losses with curvature in
$[-m, M]$ and L the constant of a step without decay:

- nothing is clipped: $L(\lambda, m-\kappa, M+\kappa) = \max(|1+\lambda(m-\kappa)|, |1-\lambda(M+\kappa)|)$;
- the records' gradients are clipped and the decay is not (so it is in PyTorch), $\lambda\kappa < 1$:
  $(1-\lambda\kappa)\,L\big(\tfrac{\lambda}{1-\lambda\kappa}, m, M\big)$, because the step is $(1-\lambda\kappa)$ times one with a longer
  stride.

A `Run` has no field for such a decay, and its ridge is the proximal one, which has another iterate. So it is certified by composition here;
the same shrinkage as a proximal ridge after the step (`NetworkProximal`) keeps the last iterate's certificate.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from lethe.errors import InputError
from lethe.run.run import Release
from lethe.train.network.step_sizes import step_size_of


class CertifiedRelease(NamedTuple):
    """The most that may be certified: `release` as a Run has it, and why."""

    release: Release
    reason: str


class _Row(NamedTuple):
    kind: type[torch.optim.Optimizer]
    release: Release
    reason: str


_SGD = "SGD without momentum, weight decay or other state is the certified recursion itself."
_ANY = "an optimiser with state or rescaling is not the certified recursion; the noisy gradients are, by composition."

OPTIMISERS: tuple[_Row, ...] = (
    _Row(torch.optim.SGD, "last", _SGD),
    _Row(torch.optim.Adam, "all", "Adam keeps two averages of the noisy gradients and rescales each coordinate: composition only."),
    _Row(torch.optim.AdamW, "all", "AdamW keeps two averages of the noisy gradients, rescales, and decays the weights: composition only."),
    _Row(torch.optim.Optimizer, "all", _ANY),
)
"""Optimiser -> what may be certified at best; the last row is every other one's, save LBFGS, which is refused."""


def certified_release(optimizer: torch.optim.Optimizer) -> CertifiedRelease:
    """What may be certified of a run of this optimiser as it is set now, if it sees the private data through noisy gradients only.

    Args:
        optimizer: any of PyTorch's; its step hooks and, for "all", its own code are taken to look at no private data.
    Returns:
        "last" for SGD with momentum 0, weight_decay 0, nesterov and maximize off, one learning rate and no hooks; else "all".
    Raises:
        InputError: no optimiser, or LBFGS, whose line search asks for gradients that were never noised.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(
            f"optimizer: got {type(optimizer).__name__}; it needs a torch.optim.Optimizer.",
            remedy="make one of several: a torch.optim.Optimizer over all parameters whose step() calls step() of each, with release: all."
            if isinstance(optimizer, list | tuple | dict)
            else None,
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InputError(
            "optimizer: LBFGS computes gradients of its own within a step; they are neither clipped nor noised.",
            source="torch.optim.LBFGS.step(closure)",
            remedy="use an optimiser that takes one gradient a step.",
        )
    if type(optimizer) is torch.optim.SGD:
        departure = _departure(optimizer)
        return CertifiedRelease("last", _SGD) if departure is None else CertifiedRelease("all", departure)
    # By exact type: a subclass may do anything in its step.
    row = next((row for row in OPTIMISERS if type(optimizer) is row.kind), OPTIMISERS[-1])
    return CertifiedRelease(row.release, row.reason)


def _departure(optimizer: torch.optim.SGD) -> str | None:
    """How this SGD departs from the certified recursion; None: not at all."""
    for group in optimizer.param_groups:
        if group["momentum"] != 0 or group["nesterov"]:
            return f"momentum = {group['momentum']} keeps state besides the iterate: composition only."
        if group["weight_decay"] != 0:
            return (
                f"weight_decay = {group['weight_decay']} shrinks inside the step, which no field of a run describes: composition only; "
                "as a proximal ridge after the step it would keep the last iterate."
            )
        if group["maximize"]:
            return "maximize climbs, which turns the loss's curvature around: composition only."
    if any(group["lr"] == 0 for group in optimizer.param_groups):
        return "lr = 0 takes no step, as at the beginning of a warm-up: composition only."
    if step_size_of(optimizer) is None:
        return "the parameter groups have different learning rates: their steps are not one step of one size; composition only."
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "step hooks may change gradients or parameters: composition only."
    return None
