"""A network with one hidden layer, trained by full-batch noisy gradient descent: every record's gradient clipped, none of them stored."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from lethe.train.core.generators import seeded_generators

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Records:
    """Features as rows, shape (n, d), and one-hot classes, shape (n, k), in one floating-point type."""

    features: torch.Tensor
    targets: torch.Tensor

    @staticmethod
    def of(features: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], classes: int, dtype: torch.dtype = torch.float32) -> Records:
        """From rows and class numbers 0..classes-1."""
        targets = torch.nn.functional.one_hot(torch.tensor(labels), classes)  # copied: another process may have been given it to read only
        return Records(features=torch.tensor(features, dtype=dtype), targets=targets.to(dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLayerNetwork:
    r"""Softmax regression on the outputs of one layer of rectified linear units.

    $$o = V^\top h + c,\qquad h = \max(0, W^\top x + b),\qquad f = -\log\,\mathrm{softmax}(o)_y$$

    With $r = \mathrm{softmax}(o) - e_y$ and $d = (Vr)\odot 1[h > 0]$ the gradients of one record are $x d^\top$, $d$, $h r^\top$ and
    $r$, so that its norm needs none of them:

    $$\|\nabla f\|^2 = (\|x\|^2 + 1)\,\|d\|^2 + (\|h\|^2 + 1)\,\|r\|^2$$

    Parameters are one vector: W, b, V, c, one after the other.

    Args:
        inputs: numbers in a record's features.
        hidden: units in the hidden layer.
        outputs: classes.
    """

    inputs: int
    hidden: int
    outputs: int

    @property
    def size(self) -> int:
        """D, the number of parameters."""
        return (self.inputs + 1) * self.hidden + (self.hidden + 1) * self.outputs

    def initial(self, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        r"""Uniform on $\pm 1/\sqrt{m}$, m the inputs of the layer, biases too: what PyTorch does by default."""
        parameters = 2.0 * torch.rand(self.size, generator=generator, dtype=dtype) - 1.0
        first = (self.inputs + 1) * self.hidden
        parameters[:first] /= self.inputs**0.5
        parameters[first:] /= self.hidden**0.5
        return parameters

    def loss(self, parameters: torch.Tensor, records: Records) -> float:
        """The mean loss in nats."""
        _, scores = self._forward(parameters, records.features)
        return float(torch.nn.functional.cross_entropy(scores, records.targets))

    def accuracy(self, parameters: torch.Tensor, records: Records) -> float:
        """The fraction of records whose class has the highest score."""
        _, scores = self._forward(parameters, records.features)
        return float((scores.argmax(dim=1) == records.targets.argmax(dim=1)).double().mean())

    def gradient_norms(self, parameters: torch.Tensor, records: Records) -> torch.Tensor:
        """The norm of each record's gradient, shape (n,), in loss per parameter unit."""
        return _norms(records.features, *self._errors(parameters, records))

    def clipped_gradient_sum(self, parameters: torch.Tensor, records: Records, clip_norm: float) -> torch.Tensor:
        r"""$\sum_i \nabla f_i \min(1, C/\|\nabla f_i\|)$, shape (D,), by one pass forward and one back over all records.

        The norm is that of a record's whole gradient, as stored numbers give it: rounding is not allowed for, so this is for
        reproductions, not for releases.

        Args:
            parameters: shape (D,).
            records: n of them; a record without gradient adds nothing.
            clip_norm: C > 0.
        """
        hidden, errors, residuals = self._errors(parameters, records)
        norms = _norms(records.features, hidden, errors, residuals)
        shares = (clip_norm / norms).clamp_(max=1.0).unsqueeze_(1)  # norm 0: clip_norm / 0 is inf, and the share 1
        errors.mul_(shares)
        residuals.mul_(shares)
        parts = (records.features.T @ errors, errors.sum(dim=0), hidden.T @ residuals, residuals.sum(dim=0))
        return torch.cat([part.flatten() for part in parts])

    def _layers(self, parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        sizes = [self.inputs * self.hidden, self.hidden, self.hidden * self.outputs, self.outputs]
        first, bias, second, offset = parameters.split(sizes)
        return first.view(self.inputs, self.hidden), bias, second.view(self.hidden, self.outputs), offset

    def _forward(self, parameters: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, bias, second, offset = self._layers(parameters)
        hidden = torch.addmm(bias, features, first).relu_()
        return hidden, torch.addmm(offset, hidden, second)

    def _errors(self, parameters: torch.Tensor, records: Records) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden, scores = self._forward(parameters, records.features)
        residuals = scores.softmax(dim=1).sub_(records.targets)
        errors = (residuals @ self._layers(parameters)[2].T).mul_(hidden > 0)
        return hidden, errors, residuals


def descend(
    network: TwoLayerNetwork, records: Records, variances: npt.NDArray[np.float64], *, clip_norm: float, step_size: float, seed: int
) -> torch.Tensor:
    r"""Full-batch noisy gradient descent from a drawn start, one step for each variance.

    $$\theta_{t+1} = \theta_t - \frac{\eta}{N}\Big(\sum_i \mathrm{Clip}_C(\nabla f_i(\theta_t)) + C\sigma_t\,N(0, I)\Big)$$

    The divisor N is fixed: with a record zeroed out, the sum moves by at most C and N stays.

    Args:
        network: gives the gradients.
        records: all N of them, used in every step.
        variances: $\sigma_t^2 \ge 0$, relative to the sensitivity C, shape (T,).
        clip_norm: C > 0.
        step_size: $\eta$ > 0.
        seed: of start and noise. Anyone can draw that noise again: it makes figures repeatable and nothing private.
    Returns:
        The last iterate, shape (D,).
    """
    start, drawn = seeded_generators(seed, (_CPU, _CPU))
    parameters = network.initial(start, records.features.dtype)
    for noise_multiplier in np.sqrt(variances).tolist():
        total = network.clipped_gradient_sum(parameters, records, clip_norm)
        if noise_multiplier > 0.0:
            fresh = torch.randn(parameters.shape, generator=drawn, dtype=torch.float64)
            total = total + (clip_norm * noise_multiplier * fresh).to(parameters.dtype)
        parameters -= total * (step_size / len(records.features))
    return parameters


def loss_and_accuracy(
    features: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int64],
    test_features: npt.NDArray[np.float64],
    test_labels: npt.NDArray[np.int64],
    variances: npt.NDArray[np.float64],
    hidden: int,
    clip_norm: float,
    step_size: float,
    seed: int,
) -> tuple[float, float]:
    """Training loss, infinite where training diverged, and test accuracy of one network: all of it follows from the arguments.

    Args:
        features, labels: of the training set, rows and class numbers from 0.
        test_features, test_labels: of the test set.
        variances, clip_norm, step_size, seed: as of `descend`.
        hidden: units of the network.
    """
    classes = int(labels.max()) + 1
    network = TwoLayerNetwork(inputs=features.shape[1], hidden=hidden, outputs=classes)
    seen, unseen = Records.of(features, labels, classes), Records.of(test_features, test_labels, classes)
    parameters = descend(network, seen, variances, clip_norm=clip_norm, step_size=step_size, seed=seed)
    loss = network.loss(parameters, seen)
    return (loss if math.isfinite(loss) else math.inf), network.accuracy(parameters, unseen)


def _norms(features: torch.Tensor, hidden: torch.Tensor, errors: torch.Tensor, residuals: torch.Tensor) -> torch.Tensor:
    first = (_squares(features) + 1.0) * _squares(errors)
    return (first + (_squares(hidden) + 1.0) * _squares(residuals)).sqrt_()


def _squares(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows, dim=1).square_()
