r"""What a training does that it was not told: how many epochs, how large its batches are, its learning rate.

Functions of the number of records, epsilon and delta, which the run and its certificate say anyhow: nothing is read off the data.

- E = 20 epochs: more give little, and each costs time.
- $b = n\max\big(\frac{E}{1000}, \frac{\mu^2}{(e - 1)E}\big)$, where the Gaussian mechanism with $\mu$ is $(\epsilon, \delta)$-DP: about
  1000 steps, and fewer where their noise multiplier z would fall below 1, at which batches that are drawn hide much less: $\mu^2 =
  \frac bn E(e^{1/z^2} - 1)$ (Bu et al. 2019, arXiv:1911.11607). Large batches: De et al. 2022, arXiv:2204.13650; Ponomareva et al. 2023,
  arXiv:2303.00654.
- AdamW's learning rate $\min(0.05, 0.4/\sqrt T)$, falling to 0 over all T steps. Its steps have one length, whatever the clip norm, and
  the noise of T of them adds up to $\sqrt T$. The factor was found by benchmarks/settings.py, on other tasks than those that it reports.
"""

import math

from lethe.calculus.conversions import gdp_mu

EPOCHS = 20
_STEPS, _RATE, _LARGEST = 1000, 0.4, 0.05


def default_batch_size(units: int, epochs: int, epsilon: float, delta: float) -> int:
    """b, of so many records or users in so many epochs, for a target of epsilon > 0 and delta in (0, 1)."""
    shares = epochs / _STEPS, gdp_mu(epsilon, delta) ** 2 / (math.e - 1.0) / epochs
    return max(1, math.ceil(units * min(max(shares), 1.0)))


def default_lr(steps: int) -> float:
    """AdamW's first learning rate, of so many steps."""
    return min(_LARGEST, _RATE / math.sqrt(steps))
