r"""AdamW without what the noise adds to its second moment.

Of a noisy mean gradient $g + \zeta$, $\zeta \sim N(0, \sigma^2 I)$ with $\sigma = zC/b$, Adam's second moment estimates
$g^2 + \sigma^2$. Where $\sigma$ is the larger part, all coordinates are divided by nearly the same number, and Adam is gradient descent
with momentum. Since $\sigma$ is public, it is subtracted: $x \leftarrow x - \lambda \hat m / \sqrt{\max(\hat v - \sigma^2, \gamma)}$.
That is post-processing.

Reference: Tang, Shpilevskiy, Lécuyer, DP-AdamBC: your DP-Adam is actually DP-SGD (unless you apply bias correction), 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.run import Run


class CorrectedAdamW(torch.optim.Optimizer):
    r"""AdamW whose second moment is freed of the noise's variance.

    Args:
        parameters: or groups of them.
        noise_std: $\sigma$, of each coordinate of the noisy mean gradient.
        lr, betas, weight_decay: as of `torch.optim.AdamW`.
        eps: $\gamma > 0$, the smallest second moment that is divided by; it needs to be chosen with the learning rate.
    Raises:
        InputError: no floor, or a noise that is no number.
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        noise_std: float,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not (0 < eps < float("inf") and 0 <= noise_std < float("inf")):
            raise InputError(f"eps: got {eps!r}, noise_std: {noise_std!r}; the first needs to be > 0, the second >= 0.")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "noise_std": noise_std}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take a step; `closure` must be None."""
        for group in self.param_groups:
            (first, second), rate = group["betas"], group["lr"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state: dict[str, Any] = self.state[parameter]
                if not state:
                    state |= {"step": 0, "mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
                state["step"] += 1
                mean: Tensor = state["mean"].lerp_(parameter.grad, 1 - first)
                square: Tensor = state["square"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
                told = (square / (1 - second ** state["step"]) - group["noise_std"] ** 2).clamp_(min=group["eps"])
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.addcdiv_(mean / (1 - first ** state["step"]), told.sqrt_(), value=-rate)


def corrected(optimizer: torch.optim.Optimizer, run: Run) -> CorrectedAdamW:
    """The same groups of parameters under the corrected optimiser.

    Args:
        optimizer: an AdamW that took no step.
        run: with one noise multiplier for all steps.
    Raises:
        InputError: another optimiser, or noise that changes or is correlated: of a coordinate's noise the second moment then depends on
            the step, and the corrected estimate would be wrong.
    """
    if not isinstance(optimizer, torch.optim.AdamW):
        raise InputError(
            f"noise_corrected: given, and the optimiser is {type(optimizer).__name__}; it is for AdamW alone.",
            remedy='optim="adamw_torch".',
        )
    if not isinstance(run.noise_multiplier, float) or run.clip_groups is not None:
        raise InputError("noise_corrected: needs one noise multiplier for all steps, and no clip_groups.", source="run.noise_multiplier")
    if run.noise is not None:
        raise InputError(
            f"noise_corrected: given, and the run has {run.noise.summary}, which is larger at a step than what is drawn for it.",
            source="run.noise",
            remedy="leave noise_corrected out: a plain AdamW trains with correlated noise; or take independent noise.",
        )
    kept = ("params", "lr", "betas", "eps", "weight_decay")
    groups = [{name: group[name] for name in kept} for group in optimizer.param_groups]
    return CorrectedAdamW(groups, noise_std=run.noise_multiplier * run.clip_bound / run.batch_size)
