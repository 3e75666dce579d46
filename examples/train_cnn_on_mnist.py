"""A convolutional network on MNIST, (3, 1e-5)-differentially private: `python examples/train_cnn_on_mnist.py [mnist.npz]`.

The file has x_train, y_train, x_test and y_test, as Keras keeps it; without one, scikit-learn downloads the data from OpenML.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lethe.train import Fitted, TrainOptions, fit

DELTA = 1e-5


class Pictures(NamedTuple):
    """Grey pictures, shape (n, 1, 28, 28), scaled by public constants, and their digits."""

    pictures: Tensor
    digits: Tensor


def load(path: str | None) -> tuple[Pictures, Pictures]:
    """The training and the test set."""
    if path is None:
        from sklearn.datasets import fetch_openml

        pixels, digits = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
        return _pictures(pixels[:60000], digits[:60000]), _pictures(pixels[60000:], digits[60000:])
    with np.load(path) as file:
        return _pictures(file["x_train"], file["y_train"]), _pictures(file["x_test"], file["y_test"])


def network() -> nn.Module:
    """26 010 parameters; tanh keeps activations, and so gradients, short (Papernot et al. 2020, arXiv:2007.14191)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def train(data: Pictures, *, batch: int = 1024, epochs: int = 8, epsilon: float = 3.0, progress: bool = True) -> Fitted[nn.Module]:
    """Train with the noise that epsilon needs."""
    options = TrainOptions(physical_size=256, progress=progress)
    target = {"epsilon": epsilon, "delta": DELTA, "epochs": epochs, "batch_size": batch, "clip_norm": 0.1}
    return fit(network(), nn.CrossEntropyLoss(), data, **target, optimizer="sgd", lr=12.0, options=options)


@torch.no_grad()
def accuracy(model: nn.Module, data: Pictures) -> float:
    """The share of digits that are read right."""
    return float((model(data.pictures).argmax(1) == data.digits).double().mean())


def main(arguments: Sequence[str]) -> None:
    """Train, and print the accuracy and the certificate."""
    private, test = load(arguments[0] if arguments else None)
    fitted = train(private)
    print(f"test accuracy {accuracy(fitted.model, test):.4f}")
    print(fitted.certificate.explain())
    print(
        "This is composition: every iterate counts as seen. Hiding all but the last would not lower epsilon, because nothing is known of "
        "a network's curvature; for a convex model such as a Linear, or a loss whose smoothness can be vouched for, it may."
    )


def _pictures(pixels: np.ndarray, digits: np.ndarray) -> Pictures:
    scaled = (pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255 - 0.13) / 0.31
    return Pictures(torch.from_numpy(scaled), torch.from_numpy(digits.astype(np.int64)))


if __name__ == "__main__":
    main(sys.argv[1:])
