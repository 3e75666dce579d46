"""What the papers' formulas and algorithms are not computed for: every number that is none is refused by its name."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lethe.errors import InputError, LetheError
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.run.losses import LeastSquares, Logistic, Softmax, Unknown
from lethe.run.schedules.momentum import momentum_weights
from lethe.train import DebiasedMomentum
from lethe_experiments.adaptive import AdaptiveDescent, ValidationDecay, train_adaptively
from lethe_experiments.adaptive.queries import noisy_min
from lethe_experiments.liang.double_clipping import clip_mean
from lethe_experiments.lower_bounds.bounds import convex_lower_bound, strongly_convex_lower_bound
from lethe_experiments.rates.liang_rates import ClippedDescent, gradient_norm_rate, private_gradient_norm_rate, root_gap_rate
from lethe_experiments.rates.tables import Setting, row
from lethe_experiments.risk.best_steps import (
    best_steps_dynamic,
    best_steps_uniform,
    t_dyn_exact,
    t_dyn_stated,
    t_uni_exact,
    t_uni_printed,
    t_uni_stated,
)
from lethe_experiments.risk.gradient_descent import decay, erub, erub_dyn, erub_uni, noise_to_gap
from lethe_experiments.risk.mini_batches import batch_term
from lethe_experiments.risk.momentum import best_u3, u3, u3_short_bound, u3_uniform, u3_uniform_bound
from lethe_experiments.risk.momentum_risk import erub_momentum_dyn, erub_momentum_uni, largest_relative_step, momentum_rate
from lethe_experiments.risk.momentum_weights import coherent_weights, debiased_weights, theorem_4_8_weights, turning_step
from lethe_experiments.risk.true_risk import repetitions, ter_expectation, ter_high_probability, uniform_stability

RUN = {"dimension": 4, "records": 1000, "batch_size": 100, "steps": 400, "step_size": 0.01, "clip_norm": 2.0, "smoothness": 4.0}
DESCENT = ClippedDescent(**RUN, gradient_std=3.0)  # pyright: ignore[reportArgumentType]
SETTING = {"dimension": 16, "records": 100, "budget": 0.16, "epsilon": 0.5, "delta": 1e-5}
PLAN = {"rho": 1.0, "gradient_rho": 0.02, "selection_rho": 0.03, "gradient_clip": 0.6, "loss_clip": 2.0}
MOMENTUM = {"kappa": 10.0, "beta": 0.5, "relative_step": 0.05, "alpha": 0.1}
DECAY = {"loss": Softmax(feature_norm=1.5), "classes": 3, "period": 2, "window": 1}
POINT = [torch.nn.Parameter(torch.ones(2))]
STABLE = {"gradient_bound": 1.0, "step_size": 0.5, "smoothness": 2.0, "steps": 10, "records": 100}
LONGEST = largest_relative_step(kappa=10.0, beta=0.5)
PROBLEM = Problem(gradient=lambda x, records: x, dimension=2, domain=BallDomain(radius=1.0), moments=Moments(order=2, bound=3.0))

FORMULAS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    *((one, {"kappa": 2.0, "alpha": 0.1}) for one in (t_uni_exact, t_dyn_exact, t_uni_printed, best_steps_uniform, best_steps_dynamic)),
    *((one, {"steps": 3, "kappa": 2.0, "alpha": 0.1}) for one in (erub_uni, erub_dyn)),
    (lambda budget: erub(kappa=2.0, alpha=0.1, budget=budget, variances=[1.0]), {"budget": 1.0}),
    (noise_to_gap, {"dimension": 1, "gradient_bound": 1.0, "budget": 1.0, "smoothness": 1.0, "records": 1, "initial_gap": 1.0}),
    (batch_term, {"gradient_variance": 1.0, "pl_constant": 1.0, "batch_size": 1, "initial_gap": 1.0}),
    *((one, {"steps": 3, **MOMENTUM}) for one in (erub_momentum_uni, erub_momentum_dyn)),
    (momentum_rate, {"kappa": 10.0, "relative_step": 0.1}),
    (largest_relative_step, {"kappa": 10.0, "beta": 0.5}),
    *((one, {"gamma": 0.9, "beta": 0.5, "steps": 3}) for one in (u3_uniform, u3_uniform_bound, u3_short_bound, best_u3)),
    *((one, {"beta": 0.5, "step": 3}) for one in (debiased_weights, lambda beta, step: coherent_weights(beta, step))),
    *((one, {"gamma": 0.9, "beta": 0.5, "steps": 3}) for one in (momentum_weights, theorem_4_8_weights)),
    (turning_step, {"gamma": 0.9, "beta": 0.5}),
    (ter_high_probability, {"excess": 0.02, "gradient_bound": 2.0, "strong_convexity": 0.5, "records": 1000, "failure": 0.1}),
    (uniform_stability, STABLE),
    (repetitions, {"failure": 0.1, "budget": 1.0}),
    (ter_expectation, {"excess": 0.1, "stability": 0.1}),
    (ClippedDescent, {**RUN, "gradient_std": 3.0}),
    (lambda **fields: root_gap_rate(DESCENT, **fields), {"noise_std": 0.1, "diameter": 1.0, "strong_convexity": 1.0}),
    (lambda **fields: private_gradient_norm_rate(DESCENT, **fields, restricted=True), {"order_alpha": 2.0, "epsilon": 1.0}),
    (Setting, {**SETTING, "failure": 0.1, "gradient_bound": 1.0, "strong_convexity": 1.0, "gamma": 0.5, "turn": 1}),
    (AdaptiveDescent, {**PLAN, "candidates": 5, "longest_step": 1.0, "growth": 0.1, "refresh": 2, "most_steps": 9}),
]
CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: decay(0.99), "smoothness / PL constant"),
    *((lambda one=one: one(1.0, 0.1), "kappa > 1") for one in (t_uni_printed, t_uni_stated, t_dyn_stated)),
    (lambda: t_uni_exact(2.0, 5e-324), "too small"),
    (lambda: uniform_stability(**{**STABLE, "step_size": 1.0 + 1e-9}), "may expand"),
    (lambda: uniform_stability(**STABLE, strong_convexity=2.1), "cannot exceed smoothness"),
    *((lambda one=one: one(0.5, 0.3, 2000), "the weight of step 1") for one in (momentum_weights, theorem_4_8_weights)),
    (lambda: u3_short_bound(gamma=0.95, beta=0.5, steps=15), "up to 14 steps"),
    (lambda: erub_momentum_uni(5, kappa=10.0, beta=0.5, relative_step=1.01 * LONGEST, alpha=0.1), f"at most {LONGEST:.6g}"),
    (lambda: erub_momentum_uni(5, kappa=1.0, beta=0.9, relative_step=1.0, alpha=0.1), "shorter steps or less momentum"),
    (lambda: Setting(dimension=10_000, records=10, budget=0.1, epsilon=0.5, delta=1e-5), "take no step"),
    (lambda: Setting(dimension=1, records=10, budget=1.0, epsilon=1.0, delta=1e-5, round_records=11), "round_records"),
    (lambda: row("gd-static").variance(Setting(**SETTING), 0.0), "step"),  # pyright: ignore[reportArgumentType]
    (lambda: row("true-gd-adv").variance(Setting(**SETTING), 1), "states no noise"),  # pyright: ignore[reportArgumentType]
    (lambda: gradient_norm_rate(replace(DESCENT, step_size=0.03), noise_std=0.1), r"1/\(9L\)"),
    (lambda: root_gap_rate(replace(DESCENT, step_size=0.12), noise_std=0.1, diameter=1.0, strong_convexity=1.0), r"9/\(20L\)"),
    (lambda: convex_lower_bound(PROBLEM, 100, 0.0), "rho"),
    (lambda: strongly_convex_lower_bound(PROBLEM, 100, 0.5), "strong_convexity"),
    (lambda: convex_lower_bound(replace(PROBLEM, moments=None), 100, 0.5), "moments"),
    (lambda: noise_to_gap(dimension=1, gradient_bound=1e-200, budget=1.0, smoothness=1.0, records=1, initial_gap=1.0), "beyond the range"),
    (lambda: u3(gamma=0.9, beta=0.5, variances=[1.0, -1.0]), "variances"),
    (lambda: root_gap_rate(DESCENT, noise_std=0.1, diameter=1.0, strong_convexity=5.0), "at most smoothness"),
    (lambda: ClippedDescent(**{**RUN, "gradient_std": 3.0, "batch_size": 1001}), "batch_size"),  # pyright: ignore[reportArgumentType]
    (lambda: row("gd-statik"), "did you mean 'gd-static'"),
    (lambda: AdaptiveDescent(**PLAN, neighbours="replace_two"), "neighbours"),  # pyright: ignore[reportArgumentType]
    (lambda: AdaptiveDescent(**{**PLAN, "rho": 0.049}), "rho"),  # pyright: ignore[reportArgumentType]
    (lambda: AdaptiveDescent.for_target(1.0, 1.0, gradient_clip=1.0, loss_clip=1.0), "delta"),
    (lambda: adaptive(loss=Unknown()), "^loss: got unknown"),
    (lambda: adaptive(initial=np.zeros((3, 1))), "^initial"),
    (lambda: adaptive(noise_generator=torch.Generator()), "^seed: given together"),
    (lambda: adaptive(seed=-1), "^seed"),
    (lambda: adaptive(features=np.full((3, 2), math.nan)), r"features\[0, 0\]"),
    (lambda: noisy_min(torch.zeros(2), bound=0.0, epsilon=1.0, touch_factor=1.0, generator=torch.Generator()), "bound"),
    (lambda: noisy_min(torch.zeros(2), bound=1.0, epsilon=math.nan, touch_factor=1.0, generator=torch.Generator()), "epsilon"),
    (lambda: DebiasedMomentum(POINT, lr=0.0, beta=0.9), "lr"),
    (lambda: DebiasedMomentum(POINT, lr=0.1, beta=1.0), "beta"),
    (lambda: DebiasedMomentum(POINT, lr=0.1).step(lambda: 1.0), "closure"),
    (lambda: clip_mean([torch.ones(2)], math.inf), "bound|norm"),
    (lambda: decaying(loss=LeastSquares(feature_norm=1.0, residual_bound=1.0)), "least_squares"),
    (lambda: decaying(classes=None), "classes"),
    (lambda: decaying(factor=1.5), "factor"),
    (lambda: decaying(period=True), "period"),
    (lambda: decaying(window=3), "window"),
    (lambda: decaying(threshold=math.nan), "threshold"),
]


def adaptive(**options: Any) -> object:
    features = options.pop("features", np.ones((3, 2)))
    fields = {"loss": Logistic(feature_norm=1.0), "seed": 0, **options}
    return train_adaptively(AdaptiveDescent(**PLAN), features, np.array([0, 1, 0]), **fields)


def decaying(**changes: Any) -> ValidationDecay:
    return ValidationDecay(np.eye(4), np.array([0, 1, 2, 0]), **{**DECAY, **changes})


@pytest.mark.parametrize("bad", [math.nan, -1.0, True, "3"])
@pytest.mark.parametrize("place", range(len(FORMULAS)))
def test_a_formula_refuses_what_is_no_number_by_its_name(place: int, bad: object) -> None:
    formula, fields = FORMULAS[place]
    formula(**fields)
    for name in fields:
        with pytest.raises(InputError, match=name):
            formula(**{**fields, name: bad})


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_what_has_no_meaning(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(LetheError, match=message):
        call()
