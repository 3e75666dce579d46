r"""Defaults of a training: how many epochs, how large its batches are, its learning rate.

`planned` and `fit` ask for what the caller left out. They are functions of the number of records n, epsilon and delta, which the run and
its certificate say anyhow, and of the weights $x_0$ at the start, which do not depend on the data, so choosing them costs no privacy.

- E = 20 epochs: more give little, and each costs time.
- $b = n\max\big(\frac{E}{400}, \frac{\mu^2}{(e - 1)E}\big)$, where the Gaussian mechanism with $\mu$ is $(\epsilon, \delta)$-DP: about
  400 steps, and fewer where their noise multiplier z would fall below 1, at which batches that are drawn hide much less: $\mu^2 =
  \frac bn E(e^{1/z^2} - 1)$ (Bu et al. 2019, arXiv:1911.11607). Large batches: De et al. 2022, arXiv:2204.13650; Ponomareva et al. 2023,
  arXiv:2303.00654.
- C = 0.1, where AdamW's learning rate is left out as well: most gradients are then longer, and the noise is no larger than they are.
- AdamW's learning rate $20\sqrt{\|x_0\|/(dT)}$, at most 0.05, falling to 0 over all T steps. Its steps have one length, whatever the clip
  norm, and the noise of T of them adds up to $\sqrt T$, in each of d parameters. Found by benchmarks/settings.py, on the five tasks
  of its `OTHERS`, between 706 and 131 000 parameters; of a RoBERTa it is 0.002, where Li et al. 2021, arXiv:2110.05679, take 0.0005.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from lethe.calculus.conversions import gdp_mu
from lethe.train.core.tensors import whole

EPOCHS, SMALL_NORM = 20, 0.1
_STEPS, _RATE, _LARGEST, _OF_ZEROS = 400, 20.0, 0.05, 0.02


def default_batch_size(units: int, epochs: int, epsilon: float, delta: float) -> int:
    """b, of so many records or users in so many epochs, for a target; InputError for what is none."""
    shares = epochs / _STEPS, gdp_mu(epsilon, delta) ** 2 / (math.e - 1.0) / epochs
    return max(1, math.ceil(units * min(max(shares), 1.0)))


def weight_scale(model: Any) -> float:
    r"""$\|x_0\|/d$ of the trained parameters of a module; 0 of what has none. Of shards all processes call it together."""
    trained = (
        [parameter for parameter in model.parameters() if parameter.requires_grad and not is_lazy(parameter)]
        if isinstance(model, nn.Module)
        else []
    )
    norms = [float(whole(torch.linalg.vector_norm(parameter.detach()))) for parameter in trained if not parameter.is_meta]
    return math.hypot(*norms) / max(sum(parameter.numel() for parameter in trained), 1)


def default_lr(steps: int, scale: float) -> float:
    r"""AdamW's first learning rate, of so many steps and $\|x_0\|/d$: the nearest of 1, 2 and 5 times a power of ten.

    So a training that is taken up again with weights drawn anew, whose norm is about the same, has the same.
    """
    rate = min(_LARGEST, _RATE * math.sqrt(scale / steps)) if 0.0 < scale < math.inf else _OF_ZEROS
    power = math.floor(math.log10(rate))
    return min((float(f"{digit}e{power}") for digit in (1, 2, 5, 10)), key=lambda candidate: abs(math.log(candidate / rate)))
