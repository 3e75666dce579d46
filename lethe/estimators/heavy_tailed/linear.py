"""Gradients of linear models for the heavy-tailed solvers, in memory or in blocks, and the choice of a solver from public constants.

The solvers of `lethe.heavy_tailed` take any gradient function; for linear models the gradient of a record is a number (the slope of the
loss at its score) times its row, so clipping needs no autograd. The linear models (model.py) call `solve`; `PrivateMean` (mean.py) takes
its blocks and its clipping from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any

import numpy as np

from lethe.calculus.domains import outside, require_count
from lethe.calculus.guarantees import ApproxDP
from lethe.errors import InputError
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.inputs.tables import readable
from lethe.estimators.partitioned.tables import BlockColumns
from lethe.heavy_tailed import Problem, multi_pass, practical_oracle
from lethe.heavy_tailed.accelerated import accelerated, accelerated_optimised, accelerated_practical, accelerated_theory
from lethe.heavy_tailed.localisation.descent import localised, strongly_convex
from lethe.heavy_tailed.localisation.plans import localised_practical, localised_theory
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass, one_pass_optimised, one_pass_practical, one_pass_theory
from lethe.heavy_tailed.oracles import ClippedMean, clip_rows
from lethe.heavy_tailed.problem import Gradient, Records, RecordsInBlocks, count_records
from lethe.heavy_tailed.proximal import proximal, proximal_optimised, proximal_practical, proximal_theory
from lethe.heavy_tailed.settings import Plan
from lethe.heavy_tailed.solution import Solution
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values
from lethe.partitions.table import ConsecutiveRecords

_SHORTEST = 1e-150  # squares of shorter rows underflow; a norm may be taken too large, never too small
_CHUNK = 2**17  # entries of a block that are held at 8 bytes at once: a MiB

Slope = Callable[[Array, Array], Array]
"""(scores, targets), shape (s,) each -> the derivatives of the losses in the scores, shape (s,)."""
Largest = Callable[[Array, Array, float | None], Array]
"""(norms, targets, radius) -> a size of each record, shape (s,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreGradients:
    """The gradients $l'_ix_i$ of some records."""

    features: Array  # $x_i$, shape (s, d)
    norms: Array  # at least their norms, shape (s,), > 0
    slopes: Array  # $l'_i$, shape (s,); one that is not finite makes its record count 0

    @property
    def shape(self) -> tuple[int, int]:
        """(s, d)."""
        return self.features.shape  # pyright: ignore[reportReturnType]

    def clipped_sum(self, clip_norm: float) -> Array:
        """The sum of the gradients, each clipped, shape (d,)."""
        reach = clip_norm * (1.0 - (self.shape[1] + 16) * 2.0**-52) / self.norms
        return np.clip(np.where(np.isfinite(self.slopes), self.slopes, 0.0), -reach, reach) @ self.features


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearScoreProblem(Problem):
    """A problem whose loss depends on the parameters through one score; its records are what `linear_records` gives."""

    slope: Slope  # of the loss in the score

    def gradients(self, parameters: Array, records: Any) -> Any:
        """As `ScoreGradients`, for `ClippedLinearMean`."""
        if isinstance(records, RecordsInBlocks):
            return records.gradients(self, parameters)
        return _score_gradients(self.slope, parameters, records)


def _score_gradients(slope: Slope, parameters: Array, records: tuple[Array, Array, Array]) -> ScoreGradients:
    """Gradients of records (rows, targets, norms of rows) at the parameters, as slopes and rows."""
    features, targets, norms = records
    with np.errstate(over="ignore", invalid="ignore"):
        return ScoreGradients(features=features, norms=norms, slopes=slope(features @ parameters, targets))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedLinearMean(ClippedMean):
    r"""`ClippedMean` of what has a `clipped_sum`: slopes are clipped at $\pm C/\|x_i\|$; the same sensitivity $2C/s$, the same noise."""

    def mean(self, rows: Any, generator: np.random.Generator) -> Array:
        """The noisy mean of clipped gradients, made from scores, without a gradient of each record."""
        count, columns = rows.shape
        return rows.clipped_sum(self.clip_norm) / count + self.release(count, columns).noise_std * generator.standard_normal(columns)


def linear_records(features: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Features, targets and norms of the features."""
    return features, targets, np.maximum(row_norms(features), _SHORTEST)


@lru_cache
def gradient_rows(slope: Slope) -> Gradient:
    """The same gradients as a table, for solvers that clip for themselves."""

    def rows(parameters: Array, records: Any) -> Array:
        features, targets, _ = records
        with np.errstate(over="ignore", invalid="ignore"):
            return slope(features @ parameters, targets)[:, None] * features

    return rows


def clipped_to(features: Array, norms: Array, longest: float) -> Array:
    """Rows clipped to a norm, rounded inward, shape (m, d); norms, shape (m,), are at least those of the rows, > 0."""
    return features * np.minimum(1.0, longest * (1.0 - (features.shape[1] + 16) * 2.0**-52) / norms)[:, None]


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """What is made of a block for `LinearScoreProblem`: features with the constant 1, targets and norms; it is sent to workers."""

    targets: Callable[[Values], Array]  # makes what the loss takes of a block's targets
    intercept: bool  # whether to append the constant

    def __call__(self, block: Block) -> Iterator[tuple[Array, Array, Array]]:
        """As `linear_records`, a chunk at a time."""
        assert block.targets is not None
        for rows, part in _chunks(block):
            wide = np.hstack([rows, np.ones((len(rows), 1))]) if self.intercept else rows
            yield linear_records(wide, self.targets(block.targets[part]))


@dataclass(frozen=True, slots=True, eq=False)
class HeavyTailedBlocks(RecordsInBlocks):
    """Records in blocks: clipped sums of gradients, each of which is one pass."""

    records: ConsecutiveRecords
    rows: ScoredRows | None = None  # how they are made; None: they are rows of which the mean is wanted

    def __len__(self) -> int:
        return self.records.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """n and d, the constant included."""
        return len(self), self.records.shape[1] + (1 if self.rows is not None and self.rows.intercept else 0)

    def part(self, block: slice) -> HeavyTailedBlocks:
        """The records of a slice, still in blocks."""
        return HeavyTailedBlocks(self.records.part(block.start, block.stop), self.rows)

    def gradients(self, problem: Problem, parameters: Array) -> BlockGradients:
        """The gradients at the parameters, computed block by block where they are stored."""
        if isinstance(problem, LinearScoreProblem):
            return BlockGradients(self.shape, self.records, _clipped_scores, (self.rows, problem.slope, parameters))
        return BlockGradients(self.shape, self.records, _clipped_rows, (problem.gradient, parameters))

    def sizes(self, largest: Largest | None = None, radius: float | None = None) -> Array | BlockColumns:
        """Norms of the rows, or what `largest` makes of them: one pass, or where they are too many, counts when they are asked for."""
        return BlockColumns(self.records, partial(_sizes, rows=self.rows, largest=largest, radius=radius)).examined()

    def lengths(self, gradient: Callable[[Array, Any], Array], parameters: Array) -> Array | BlockColumns:
        """Norms of the gradients there, as `sizes`."""
        return BlockColumns(self.records, partial(_lengths, gradient=gradient, parameters=parameters)).examined()

    def clipped_moments(self, longest: float) -> Array:
        """The sum of the products of the rows, clipped to that norm, shape (d, d)."""
        return self.records.sum(_clipped_products, self.rows, longest)[0]


@dataclass(frozen=True, slots=True, eq=False)
class BlockGradients:
    """Gradients of records in blocks, of which nothing is computed but clipped sums."""

    shape: tuple[int, int]  # (s, d)
    records: ConsecutiveRecords
    function: Callable[..., tuple[Array]]  # of (Block, *parameters, clip norm), to their clipped sum
    parameters: tuple[Any, ...]

    def clipped_sum(self, clip_norm: float) -> Array:
        """One pass, shape (d,)."""
        return self.records.sum(self.function, *self.parameters, clip_norm)[0]


def _sizes(block: Block, rows: Any, largest: Largest | None, radius: float | None) -> Array:
    """Norms of the rows of a block, or bounds on gradients that `largest` makes of them."""
    return np.concatenate([norms if largest is None else largest(norms, targets, radius) for _, targets, norms in rows(block)])


def _lengths(block: Block, gradient: Callable[[Array, Any], Array], parameters: Array) -> Array:
    """Norms of the gradients of a block's records at the parameters."""
    return np.concatenate([row_norms(gradient(parameters, rows)) for rows, _ in _chunks(block)])


def _chunks(block: Block) -> Iterator[tuple[Array, slice]]:
    """Rows of a block in float64, a few at a time, each with the slice of its records."""
    size = max(1, _CHUNK // block.features.shape[1])
    for start in range(0, len(block), size):
        part = slice(start, start + size)
        yield np.asarray(readable(block.features[part]), dtype=np.float64), part


def _clipped_scores(block: Block, scored_rows: ScoredRows, slope: Slope, parameters: Array, clip_norm: float) -> tuple[Array]:
    """Sum of a block's clipped gradients, from slopes and rows."""
    total = np.zeros(len(parameters))
    for records in scored_rows(block):
        total += _score_gradients(slope, parameters, records).clipped_sum(clip_norm)
    return (total,)


def _clipped_rows(block: Block, gradient: Callable[[Array, Any], Array], parameters: Array, clip_norm: float) -> tuple[Array]:
    """Sum of a block's clipped gradients, of any gradient function of rows."""
    total = np.zeros(len(parameters))
    for rows, _ in _chunks(block):
        total += clip_rows(gradient(parameters, rows), clip_norm).sum(axis=0)
    return (total,)


def _clipped_products(block: Block, scored_rows: ScoredRows, longest: float) -> tuple[Array]:
    """Sum over a block of the outer products of rows clipped to norm `longest`."""
    width = block.features.shape[1] + (1 if scored_rows.intercept else 0)
    total = np.zeros((width, width))
    for features, _, norms in scored_rows(block):
        clipped = clipped_to(features, norms, longest)
        total += clipped.T @ clipped
    return (total,)


SOLVERS = ("multi_pass", "one_pass", "accelerated", "proximal", "localised", "sampled_localised", "strongly_convex")
PARAMETERS = ("practical", "theory", "optimised")
UNIFORM = ("localised", "sampled_localised", "strongly_convex")
"""Those that need moments of the largest gradient in the domain, of an order of at least 4."""
_PLANNED = {
    "one_pass": {"practical": one_pass_practical, "theory": one_pass_theory, "optimised": one_pass_optimised},
    "accelerated": {"practical": accelerated_practical, "theory": accelerated_theory, "optimised": accelerated_optimised},
    "proximal": {"practical": proximal_practical, "theory": proximal_theory, "optimised": proximal_optimised},
}
_KINDS = {"multi_pass": ("practical",)} | dict.fromkeys(UNIFORM, ("practical", "theory"))
_MOST_STEPS = 30  # of a phase, where settings are practical


def chosen_solver(solver: Any, parameters: Any, *, strongly: bool) -> str:
    """The solver's name; "auto": multi_pass for practical settings, else the one with the better rate of those with a bound."""
    if parameters not in PARAMETERS:
        raise outside("parameters", parameters, "one of " + ", ".join(PARAMETERS))
    if isinstance(solver, str) and solver == "auto":
        return "multi_pass" if parameters == "practical" else "one_pass" if strongly else "accelerated"
    if solver not in SOLVERS:
        raise outside("mechanism", solver, "auto or one of " + ", ".join(SOLVERS))
    kinds = _KINDS.get(solver, PARAMETERS)
    if parameters not in kinds:
        raise InputError(
            f'mechanism = "{solver}" with parameters = "{parameters}"; it has {" and ".join(kinds)} ones only.',
            source="the options mechanism and parameters",
            remedy='take another mechanism, or "auto"',
        )
    return solver


def solve(
    name: str,
    parameters: str,
    problem: LinearScoreProblem,
    records: Records,
    rho: float,
    *,
    target: ApproxDP,
    passes: Any = 30,
    generator: np.random.Generator | None = None,
) -> tuple[Solution, Plan | None]:
    r"""Run a solver on all records at $\rho$, or at the `target` where its cost is not Gaussian.

    Its solution, and the settings with their risk bound; None for solvers without one.
    """
    if name == "multi_pass":
        oracle = ClippedLinearMean(clip_norm=practical_oracle(problem, rho).clip_norm, rho=rho)
        count = require_count("passes", passes)
        return multi_pass(problem, records, oracle=oracle, passes=count, generator=generator), None
    if name in UNIFORM:
        rows = Problem(**{field.name: getattr(problem, field.name) for field in fields(Problem)})
        if name == "strongly_convex":
            limit = _MOST_STEPS if parameters == "practical" else None
            return strongly_convex(rows, records, rho=rho, most_steps=limit, generator=generator), None
        schedule = (localised_practical if parameters == "practical" else localised_theory)(rows, count_records(records), rho)
        if name == "sampled_localised":
            goal: Any = {"epsilon": target.epsilon_bound, "delta": target.delta_bound, "allow_large_delta": True}
            return sampled_localised(rows, records, schedule=schedule, **goal, generator=generator), None
        return localised(rows, records, schedule=schedule, rho=rho, generator=generator), None
    plan = planned(name, parameters, problem, count_records(records), rho)
    oracle = ClippedLinearMean(clip_norm=plan.clip_norm, rho=rho)
    if name == "accelerated":
        assert plan.step is not None
        solution = accelerated(problem, records, oracle=oracle, steps=plan.steps, step=plan.step, generator=generator)
    else:
        solution = (one_pass if name == "one_pass" else proximal)(problem, records, oracle=oracle, steps=plan.steps, generator=generator)
    return solution, plan


@lru_cache(maxsize=4096)
def planned(name: str, parameters: str, problem: Problem, count: int, rho: float) -> Plan:
    r"""The settings of a one-pass solver that starts in the middle of the domain."""
    # A convex F has $F(0) - F(w^*) \le \|\nabla F(0)\|\,\|w^*\|$: the gap of `proximal`.
    make: Any = _PLANNED[name][parameters]
    if name == "accelerated":
        return make(problem, count, rho)
    radius = problem.distance(problem.domain.diameter / 2.0)
    if name == "one_pass":
        return make(problem, count, rho, distance=radius)
    return make(problem, count, rho, gap=problem.known_moments().raw_second(problem.dimension) * radius)
