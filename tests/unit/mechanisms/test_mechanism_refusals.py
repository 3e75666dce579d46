"""What mechanisms refuse: the call, the argument that the error names, and that it says what to do."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lethe.calculus.guarantees import GDP, ApproxDP, NotPrivate
from lethe.errors import InputError
from lethe.mechanisms.adassp import adassp
from lethe.mechanisms.base import gaussian_guarantee, require_swap, target_mu
from lethe.mechanisms.bounded_range import range_delta, range_guarantee, range_mu, range_of_mu, range_of_target, range_renyi
from lethe.mechanisms.minimisers.objective_perturbation import minimiser_profile, objective_noise_std, objective_perturbation
from lethe.mechanisms.minimisers.output_perturbation import output_perturbation
from lethe.mechanisms.moments import channel_moments, second_moment
from lethe.mechanisms.quantiles.quantile import private_quantile
from lethe.mechanisms.repetitions import PoissonRepetitions, TruncatedNegativeBinomial
from lethe.mechanisms.selection import choose
from lethe.mechanisms.standardise import standardise
from lethe.mechanisms.tables import projected_rows
from lethe.run.losses import Logistic

LOSS = Logistic(feature_norm=1.0)
TARGET = ApproxDP(1.0, 1e-5)
PAIR: dict[str, Any] = {"features": [[1.0], [0.5]], "targets": [0, 1]}
# Of each mechanism a call that it takes.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "adassp": (adassp, PAIR | {"feature_norm": 1.0, "target_bound": 1.0, "target": TARGET}),
    "channel_moments": (channel_moments, {"rows": np.zeros((5, 6)), "channels": 2, "norm": 1.0, "target": GDP(1.0)}),
    "second_moment": (second_moment, {"rows": np.zeros((3, 2)), "norm": 1.0, "target": GDP(1.0)}),
    "standardise": (standardise, {"rows": np.zeros((3, 2)), "low": -1.0, "high": 1.0, "target": GDP(1.0)}),
    "private_quantile": (private_quantile, {"values": [0.1, 0.2, 0.3], "quantile": 0.5, "low": 0.0, "high": 1.0, "target": GDP(1.0)}),
    "output_perturbation": (output_perturbation, PAIR | {"loss": LOSS, "regularisation": 1.0, "target": TARGET}),
    "objective_perturbation": (objective_perturbation, PAIR | {"loss": LOSS, "regularisation": 4.0, "target": TARGET}),
    "objective_noise_std": (objective_noise_std, {"loss": LOSS, "records": 1000, "weights": 5, "regularisation": 0.05, "target": TARGET}),
    "minimiser_profile": (minimiser_profile, {"loss": LOSS, "ridge": 1.0, "noise_std": 1.0, "solver_mu": 0.0}),
    "choose": (
        choose,
        {
            "candidates": "abc",
            "train": str,
            "score": len,
            "repetitions": TruncatedNegativeBinomial(eta=1.0, gamma=0.5),
            "train_guarantee": GDP(0.3),
            "score_guarantee": "public",
        },
    ),
}
ALL: dict[str, tuple[Any, ...]] = {
    "neighbours": ("add_or_remove", "some"),
    "target": (1.0, None, NotPrivate(), GDP(0.0), ApproxDP(1.0, 0.0)),
    "generator": (1,),
    "records": (0, 7.5, True),
}
TABLES = (np.zeros(2), np.zeros((0, 2)), np.zeros((2, 0)), [[math.nan, 0.0]], [[1.0, math.inf]], [["a", "b"]], [[1j, 1j]], [[True, False]])
OWN: dict[str, dict[str, tuple[Any, ...]]] = {
    "adassp": {
        "feature_norm": (-1.0, math.inf),
        "target_bound": (0.0,),
        "least_ridge": (-1.0,),
        "features": ([[1.0], ["a"]], [1.0, 2.0]),
        "targets": ([1.0], [1.0, math.inf]),
    },
    "channel_moments": {
        "channels": (0, 4, 2.0, True),
        "norm": (0.0, math.nan, 1e-160, 1e160),
        "mean_weight": (0.0, 2.1, math.nan),
        "rows": TABLES,
    },
    "second_moment": {"records": (2, 7), "norm": (0.0, math.nan, math.inf, True), "rows": TABLES},
    "standardise": {
        "low": (1.0, math.nan, [0.0], -1e308 * 2),
        "high": (math.inf, "1", True, -1.0),
        "least_scale": (0.0, 1.5),
        "rows": TABLES,
    },
    "private_quantile": {
        "quantile": (0.0, 1.0, math.nan, True),
        "low": (1.0, math.nan),
        "high": (math.inf,),
        "values": ([math.nan], [math.inf], ["a"], [[1.0]], [True], [[1.0], [1.0, 2.0]], []),
    },
    "output_perturbation": {
        "loss": (None, 3),
        "regularisation": (0.0, math.nan),
        "features": ([[math.nan], [1.0]],),
        "targets": ([0, 2], [0]),
    },
    "objective_perturbation": {"noise_std": (1.0,), "loss": (None,), "regularisation": (0.0,), "features": ([[math.nan], [1.0]],)},
    "objective_noise_std": {
        "regularisation": (math.inf,),
        "records": (1000.0,),
        "weights": (True,),
        "loss": (None,),
        "target": (GDP(1.0),),
    },
    "minimiser_profile": {"ridge": (math.nan,), "noise_std": (0.0, True), "solver_mu": (-1.0,)},
    "choose": {
        "candidates": ((),),
        "repetitions": (5,),
        "train_guarantee": (0.3, "public"),
        "score_guarantee": ("private", None),
        "delta": (1.0, math.nan),
        "score": (lambda _: "high",),
    },
}


TAKEN = (("private_quantile", ApproxDP(1.0, 0.0)), ("choose", "add_or_remove"))


def cases(name: str) -> Iterator[tuple[str, Any]]:
    call, _ = CALLS[name]
    takes = inspect.signature(call).parameters
    for field, values in [*OWN[name].items(), *((field, values) for field, values in ALL.items() if field in takes)]:
        yield from ((field, value) for value in values if (name, value) not in TAKEN)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_refused_names_the_argument_and_what_to_do(name: str) -> None:
    call, good = CALLS[name]
    call(**good)
    for field, value in cases(name):
        with pytest.raises(InputError) as refused:
            call(**{**good, field: value})
        text = str(refused.value)
        assert field in text or refused.value.source in ("the data", "run.loss") or "range" in text, (field, value, text)


REFUSED: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "gamma": (lambda value: TruncatedNegativeBinomial(eta=1.0, gamma=value), (0.0, 1.0, -0.1, math.nan, "x", True, 1e-7)),
    "eta": (lambda value: TruncatedNegativeBinomial(eta=value, gamma=0.5), (-1.0, math.nan, math.inf, True)),
    "rate": (lambda value: PoissonRepetitions(rate=value), (0.0, -1.0, math.nan, math.inf, True, 501.0)),
    "mean": (TruncatedNegativeBinomial.of_mean, (1.0, 0.5, math.nan, 2e6, "x")),
    "delta": (TruncatedNegativeBinomial(eta=0.0, gamma=0.5).hit_probability, (-0.1, 1.1, math.nan)),
    "sensitivity": (lambda value: gaussian_guarantee(value, 1.0), (math.nan, -1.0, True)),
    "noise_std": (lambda value: gaussian_guarantee(1.0, value), (math.inf,)),
    "target": (target_mu, (ApproxDP(1.0, 0.0), ApproxDP(0.0, 1e-5), GDP(0.0), NotPrivate(), 1.0)),
    "neighbours": (require_swap, ("add_or_remove",)),
    "mu": (range_of_mu, (-1.0, math.nan)),
    "epsilon": (range_mu, (-1.0, math.nan, math.inf, "1", True)),
    "epsilon of a guarantee": (range_guarantee, (-1.0, math.inf)),
    "epsilon of a delta": (lambda value: range_delta(value, 0.1), (-1.0, math.inf)),
    "epsilon of orders": (lambda value: range_renyi(value, [2.0]), (-1.0, math.inf)),
    "target of a range": (range_of_target, (1.0, None)),
    "feature_norm": (lambda value: projected_rows([[1.0]], feature_norm=value), (0.0,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_out_of_their_range_are_refused_by_name(name: str) -> None:
    call, values = REFUSED[name]
    for value in values:
        with pytest.raises(InputError, match=name.split()[0]):
            call(value)
