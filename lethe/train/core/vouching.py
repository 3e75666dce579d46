"""Training records: what training enforced of its run, and the digests of the released weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from lethe.certificates.findings import TRAIN
from lethe.certificates.training_record import HypothesisClaim, Released, TrainingRecord
from lethe.certificates.weights import tensors_digest
from lethe.certificates.weights.torch_tensors import raw_state
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.core.tensors import whole

KEPT_WITHIN = "iterates are kept in float64 and projected to that norm; noise is added before they are rounded"
OF_NETWORKS = f"{KEPT_WITHIN}; curvature is declared of the gradients as the model computes them at parameters of its own type"
_ALONE = "each record passed through the model and the loss alone, as a batch of one"
_FILTER = "the budget filter of lethe.train decides it, step by step"


def network_record(
    run: Run,
    model: nn.Module,
    declared: tuple[HypothesisClaim, ...],
    averaged: Mapping[str, Tensor] | None = None,
    *,
    isolation: str = "checked",
) -> TrainingRecord:
    """The training record of a network: the parameters and buffers that its state dict has now.

    Args:
        run: as recorded.
        model: trained; nothing else of it is sealed, such as its code.
        declared: what no code saw, and nothing that depends on the records.
        isolation: of the Clipper.
        averaged: a state dict with an average of the iterates, released beside the model; None: there is none.
    """
    enforced = (HypothesisClaim("budget filter", _FILTER),) if run.noise_budget is not None else ()
    enforced += (HypothesisClaim("isolation", _ALONE),) if isolation == "enforced" else ()
    enforced += _arithmetic(run, OF_NETWORKS)
    released = (*released_states({"model": model}), *(() if averaged is None else _released("moving average", averaged)))
    return TrainingRecord(run=run, by=TRAIN, enforced=enforced, declared=declared, released=released)


def linear_record(
    run: Run, weights: np.ndarray[Any, Any], intercept: np.ndarray[Any, Any], declared: tuple[HypothesisClaim, ...] = ()
) -> TrainingRecord:
    """The training record of a linear model: its weights and its intercept.

    Args:
        run: as recorded, of a loss whose features were projected.
        weights: shape (d, k).
        intercept: shape (k,).
        declared: what no code saw.
    """
    projected = f"every record's features are projected to norm {run.loss.feature_norm:g}"  # pyright: ignore[reportAttributeAccessIssue]
    enforced = [HypothesisClaim("gradient bound", projected), HypothesisClaim("curvature", projected)]
    enforced += _arithmetic(run)
    if not run.seeded:
        enforced.append(HypothesisClaim("secrecy", "drawn from fresh entropy inside fit_linear, neither kept nor shown"))
    if run.noise_budget is not None:
        enforced.append(HypothesisClaim("budget filter", _FILTER))
    released = Released("weights and intercept", tensors_digest({"weights": weights, "intercept": intercept}))
    return TrainingRecord(run=run, by=TRAIN, enforced=tuple(enforced), declared=declared, released=(released,))


def _arithmetic(run: Run, how: str = KEPT_WITHIN) -> tuple[HypothesisClaim, ...]:
    return () if run.precision is None else (HypothesisClaim("arithmetic", how),)


def released_states(models: Mapping[str, nn.Module]) -> tuple[Released, ...]:
    """The digests of models' state dicts, by what they are; none where a tensor is of a kind that has no digest.

    Hours of training are not thrown away for that: the record then cannot be sealed, and says so when it is asked to be.
    """
    found = [_released(name, model.state_dict()) for name, model in models.items()]
    return tuple(one for state in found for one in state) if all(found) else ()


def _released(name: str, state: Mapping[str, Tensor]) -> tuple[Released, ...]:
    try:
        gathered = {name: whole(entry) if isinstance(entry, Tensor) else entry for name, entry in state.items()}
        return (Released(name, tensors_digest(raw_state(gathered))),)
    except InputError:
        return ()
