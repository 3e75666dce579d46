"""Makes the training record that a certificate is issued from: what training enforced, what is declared and unchecked, digests of the
weights. Called at the end by `Trainer`, `PrivacyEngine` and the linear loop (`lethe.certify(record, delta)` reads it).
"""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from lethe.certificates import findings
from lethe.certificates.records import HypothesisClaim, Released, TrainingRecord
from lethe.certificates.weights import raw_state, tensors_digest
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.core.tensors import whole

KEPT_WITHIN = "iterates are kept in float64 and projected to that norm; noise is added before they are rounded"
_OF_NETWORKS = f"{KEPT_WITHIN}; curvature is declared of the gradients as the model computes them at parameters of its own type"

START = HypothesisClaim("start", "the initial weights depend on these records only through another certified training")
STATE = HypothesisClaim("start", "initial weights and optimiser state depend on these records through certified training only")
MODEL = HypothesisClaim("model", "each record's output depends on that record alone, also in unchecked batches")
MEMORY = HypothesisClaim("memory", "apart from its trained weights, the model stores nothing of the records anywhere")
LOSS = HypothesisClaim("loss", "each record's loss depends on its own output and target alone, also in unchecked batches")
CONSTANTS = HypothesisClaim("constants", "weights, numbers and tensors that the loss holds are public, and no batch statistics")
OPTIMISER = HypothesisClaim(findings.OPTIMISER, "the optimiser and its hooks use nothing of the records but noisy gradients")
SETTINGS = HypothesisClaim("learning rate", "it and other settings follow a plan or released values, never a training loss")
USERS = (
    HypothesisClaim("users", "all records of a user have its id, and nobody else's record has it"),
    HypothesisClaim("user of a record", "it is known without a look at other users' records"),
    HypothesisClaim("list of ids", "it does not depend on any user's data"),
)
WORKERS = HypothesisClaim("workers", "workers that read blocks learn which records are in a batch, and tell nobody")
LOOP = HypothesisClaim("loop", "between the loader and engine.backward, the loop keeps the records of a batch apart")
REPLAY = HypothesisClaim("replay", "each batch is used in its own step alone, and none is stored for another")
ORDER = HypothesisClaim("order", "the losses of a batch stand in the order of its rows")
UNCHECKED = HypothesisClaim("checks", "isolation=declared: neither the model nor the loss was checked in any batch")
OBJECTS = HypothesisClaim("memory", "modules and loss store nothing of the records in Python objects, files or elsewhere")
PADDING = HypothesisClaim("padding", "the model masks padding, whose length the longest record of a batch decides")
"""Where isolation is enforced, `OBJECTS`, and `PADDING` of records that are read one by one, take the place of `MODEL` to `CONSTANTS`."""
PRIVATE = HypothesisClaim("callbacks", "what callbacks with private=True are told of the records is never published")

_ALONE = HypothesisClaim("isolation", "each record passed through the model and the loss alone, as a batch of one")
_SECRET = HypothesisClaim("secrecy", "drawn from fresh entropy inside fit, neither kept nor shown")
_FILTER = HypothesisClaim("budget filter", "the budget filter of lethe.train decides it, step by step")


def claims(
    *, data: Any, isolation: str, optimiser: bool, users: bool, loop: bool = False, private: bool = False
) -> tuple[HypothesisClaim, ...]:
    """What is declared of the training of a network. It is published, so nothing in it may depend on the records."""
    enforced, is_user_source = isolation == "enforced", not type(data).__module__.startswith("lethe.") and not hasattr(data, "declared")
    apart = (f"{type(data).__name__}.fetch makes each row of a batch of its own record alone",) if is_user_source else ()
    claims_of = (
        (STATE if optimiser else START, True),
        (OBJECTS, enforced),
        (PADDING, enforced and (is_user_source or hasattr(data, "declared"))),
        *((claim, not enforced) for claim in (MODEL, MEMORY, LOSS, CONSTANTS)),
        *((claim, users) for claim in USERS),
        *((claim, loop) for claim in (LOOP, REPLAY)),
        (ORDER, loop and users),
        *((claim, optimiser) for claim in (OPTIMISER, SETTINGS)),
        *((HypothesisClaim("data", detail), True) for detail in (*apart, *getattr(data, "declared", ()))),
        (UNCHECKED, isolation == "declared"),
        (PRIVATE, private),
    )
    return tuple(claim for claim, holds in claims_of if holds)


def network_record(
    run: Run,
    model: nn.Module,
    declared: tuple[HypothesisClaim, ...],
    averaged: Mapping[str, Tensor] | None = None,
    *,
    isolation: str = "checked",
) -> TrainingRecord:
    """The training record of a network: the parameters and buffers that its state dict has now.

    `averaged`: a state dict with an average of the iterates, released beside the model.
    """
    enforced = ((_ALONE,) if isolation == "enforced" else ()) + _of_every_run(run, _OF_NETWORKS)
    adapters = {f"adapter {name}": state for name, state in adapter_states(model).items()}
    states = {"model": model.state_dict(), **adapters} | ({} if averaged is None else {"moving average": averaged})
    return TrainingRecord(run=run, by=findings.TRAIN, enforced=enforced, declared=declared, released=released_states(states))


def adapter_states(model: nn.Module) -> dict[str, Mapping[str, Tensor]]:
    """Of a model that peft adapted what `save_pretrained` writes of each adapter, by the adapter's name: the file that is published."""
    states: dict[str, Mapping[str, Tensor]] = {}
    configs: Any = getattr(model, "peft_config", None)
    for name, config in configs.items() if isinstance(configs, dict) else ():
        from peft import get_peft_model_state_dict

        # As by default, but that peft would ask the Hub whether the table of words has grown.
        adapted = not {"embed_tokens", "lm_head"}.isdisjoint(getattr(config, "target_modules", None) or ())
        with suppress(AttributeError, KeyError, ValueError), warnings.catch_warnings(action="ignore"):  # no training is lost for that
            states[name] = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers="auto" if adapted else False)
    return states


def linear_record(
    run: Run, weights: np.ndarray[Any, Any], intercept: np.ndarray[Any, Any], declared: tuple[HypothesisClaim, ...] = ()
) -> TrainingRecord:
    """The training record of a linear model. Weights and intercept have shapes (d, k) and (k,)."""
    projected = f"every record's features are projected to norm {run.loss.feature_norm:g}"  # pyright: ignore[reportAttributeAccessIssue]
    bounds = HypothesisClaim("gradient bound", projected), HypothesisClaim("curvature", projected)
    enforced = (*bounds, *(() if run.seeded else (_SECRET,)), *_of_every_run(run, KEPT_WITHIN))
    released = Released("weights and intercept", tensors_digest({"weights": weights, "intercept": intercept}))
    return TrainingRecord(run=run, by=findings.TRAIN, enforced=enforced, declared=declared, released=(released,))


def _of_every_run(run: Run, arithmetic: str) -> tuple[HypothesisClaim, ...]:
    filtered = () if run.noise_budget is None else (_FILTER,)
    return filtered if run.precision is None else (*filtered, HypothesisClaim("arithmetic", arithmetic))


def released_states(states: Mapping[str, Mapping[str, Any]]) -> tuple[Released, ...]:
    """The digests of state dicts, by what they are; none where a tensor is of a kind that has no digest.

    Hours of training are not thrown away for that: the record then cannot be sealed, and says so when it is asked to be.
    """
    gathered = {name: tree_map_only(Tensor, whole, dict(state)) for name, state in states.items()}
    try:
        return tuple(Released(name, tensors_digest(raw_state(state))) for name, state in gathered.items())
    except InputError:
        return ()
