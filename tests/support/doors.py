"""Shorthands of tests for `lethe.train.fit`, with its options flat beside its own arguments."""

from typing import Any

from lethe.run.run import Run
from lethe.train import Fitted, Head, Linear, TrainOptions, fit

_OF_FIT = {"epsilon", "delta", "epochs", "batch_size", "clip_norm", "optimizer", "lr", "callbacks", "options"}
_OF_LINEAR = {"classes", "initial", "dtype", "device"}


def arguments(flat: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `fit` or `PrivacyEngine`: those that are no options as they are, and the rest as TrainOptions."""
    own = {name: value for name, value in flat.items() if name in _OF_FIT}
    return {**own, "options": TrainOptions(**{name: value for name, value in flat.items() if name not in _OF_FIT})}


def fit_linear(run: Run, features: Any, targets: Any = None, **flat: Any) -> Fitted[Any]:
    """Train a Linear model, whose own arguments are among the flat ones."""
    model = Linear(**{name: value for name, value in flat.items() if name in _OF_LINEAR})
    return fit(model, None, (features, targets), run, **arguments({name: flat[name] for name in flat if name not in _OF_LINEAR}))


def fit_head(backbone: Any, head: Any, data: Any, run: Run, **flat: Any) -> Fitted[Any]:
    """Train a Head."""
    return fit(Head(backbone, head), None, data, run, **arguments(flat))
