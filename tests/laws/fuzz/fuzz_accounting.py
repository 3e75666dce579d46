"""Random runs against exact truths: no certificate may say less than linear losses reveal, and none may crash, hang or be no number.

    python tests/laws/fuzz/fuzz_accounting.py --runs 50000 --first 0

Losses <g, x> are allowed by every kind of loss that names a smoothness or none. With them, and with ridge regularisation, the last iterate
given the record's positions is Gaussian, so its law over secret positions is a mixture of normal laws of one variance, whose divergence
is integrated here. What is released at every step reveals as much at least.
"""

import argparse
import json
import math
import sys
import time
import warnings
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
from helpers import SIZED_DESIGNS
from helpers import batches as batches_of
from scipy import special, stats

import lethe
from lethe.errors import LetheError
from lethe.run.batches import DESIGNS

DELTAS = (1e-6, 1e-3)
LINEAR_KINDS = ("unknown", "smooth", "holder", "weakly_convex", "convex", "generalised_linear")
MOST_PATTERNS = 3000
SLOW = 60.0
ORDINARY_EVERY = 10
CHUNK = 1000

ORDINARY_NOISE = (0.3, 0.5, 0.8, 1.0, 1.5, 3.0, 5.0, 10.0, 30.0)
EXTREMES = (0.0, 5e-324, 1e-308, 1e-250, 1e-30, 1e-9, 1.0, 1e9, 1e17, 1e30, 1e150, 1e250)
Law = tuple[np.ndarray, np.ndarray]
"""How far one record moves the last iterate, and how likely it is."""


def ordinary_document(seed: int) -> dict[str, Any]:
    """A run that somebody could carry out: every design, relation, release, loss and place of the noise."""
    generator = np.random.default_rng([16, seed])
    size = int(generator.choice([1, 2, 5, 20, 100, 500]))
    records = size * int(generator.choice([1, 2, 3, 7, 20, 50])) + int(generator.integers(0, size))
    fields = _shape(generator, records, size, int(generator.choice([1, 2, 3, 5, 10])))
    smoothness = float(generator.choice([0.05, 0.2, 1.0, 4.0]))
    step_size = float(generator.choice([0.1, 0.5, 1.0, 1.9])) / smoothness
    fields |= {
        "step_size": step_size,
        "noise_multiplier": _noise(generator, fields, lambda: float(generator.choice(ORDINARY_NOISE))),
        "loss": _loss(generator, smoothness),
        "regulariser": _regulariser(generator),
    }
    if generator.random() < 0.4:
        fields["clip_norm"] = float(generator.choice([0.1, 0.5, 1.0, 2.0]))
    return fields


def extreme_document(seed: int) -> dict[str, Any]:
    """A run of few records whose numbers may be anything a double can hold."""
    generator = np.random.default_rng([61, seed])
    size = int(generator.choice([1, 2, 3, 5]))
    records = size * int(generator.integers(1, 5)) + int(generator.integers(0, size))
    fields = _shape(generator, records, size, int(generator.integers(1, 5)))

    def any_number() -> float:
        return float(generator.choice(EXTREMES)) if generator.random() < 0.5 else float(10 ** generator.uniform(-3, 3))

    fields |= {
        "step_size": any_number() or 1.0,
        "noise_multiplier": _noise(generator, fields, any_number),
        "loss": _loss(generator, any_number(), gradient_bound=any_number() or 1.0),
        "regulariser": _regulariser(generator),
    }
    if generator.random() < 0.5:
        fields["clip_norm"] = any_number() or 1.0
    return fields


def _shape(generator: np.random.Generator, records: int, size: int, passes: int) -> dict[str, Any]:
    design = "full" if generator.random() < 0.1 else str(generator.choice(SIZED_DESIGNS))
    batches: dict[str, Any] = batches_of(design, size)
    removable = "add_or_remove" in DESIGNS[design].neighbours
    per_pass = 1 if design == "full" else records // size
    length = {"passes": passes} if generator.random() < 0.8 else {"steps": int(generator.integers(1, passes * per_pass + 1))}
    return {
        "records": records,
        "batches": batches,
        **length,
        "noise_at": "every_step" if generator.random() < 0.6 else "pass_ends",
        "release": "last" if generator.random() < 0.7 else "all",
        "neighbours": str(generator.choice(["replace_one", "zero_out", "add_or_remove"][: 3 if removable else 2])),
    }


def _noise(generator: np.random.Generator, fields: dict[str, Any], draw: Any) -> float | list[float]:
    if generator.random() < 0.6:
        return draw()
    batches = fields["batches"]
    per_pass = fields["records"] // batches.get("size", fields["records"])
    steps = fields.get("steps") or fields["passes"] * per_pass
    entries = steps if fields["noise_at"] == "every_step" else -(-steps // per_pass)
    return [0.0 if generator.random() < 0.15 else draw() for _ in range(entries)]


def _loss(generator: np.random.Generator, smoothness: float, gradient_bound: float = 1.0) -> dict[str, Any]:
    bounded = {"gradient_bound": gradient_bound}
    kinds: list[dict[str, Any]] = [
        {"kind": "unknown", **bounded},
        {"kind": "smooth", "smoothness": smoothness, **bounded},
        {"kind": "holder", "constant": smoothness, "exponent": float(generator.choice([0.3, 0.5, 1.0])), **bounded},
        {"kind": "weakly_convex", "weak_convexity": smoothness / 10, "smoothness": smoothness, **bounded},
        {"kind": "convex", "smoothness": smoothness, **bounded},
        {"kind": "generalised_linear", "weak_convexity": 0.0, "smoothness": smoothness, **bounded},
        {"kind": "softmax_regression", "feature_norm": 1.0},
        {"kind": "logistic_regression", "feature_norm": 1.0},
    ]
    if smoothness > 0:
        kinds.append({"kind": "strongly_convex", "strong_convexity": smoothness / 2, "smoothness": smoothness, **bounded})
    return kinds[int(generator.integers(len(kinds)))]


def _regulariser(generator: np.random.Generator) -> dict[str, Any] | None:
    choice = generator.random()
    if choice < 0.15:
        return {"kind": "ridge", "strength": float(generator.choice([1e-3, 0.1, 1.0]))}
    if choice < 0.3:
        return {"kind": "ball", "radius": float(generator.choice([0.1, 1.0, 10.0]))}
    return None


def violations(run: lethe.Run) -> list[str]:
    """What is wrong with what Lethe says of this run."""
    wrong: list[str] = []
    law = exact_law(run)
    certificate = lethe.certify(run, DELTAS[0], allow_large_delta=True)
    for delta in DELTAS:
        epsilon = certificate.guarantee.epsilon(delta)
        if not epsilon >= 0:
            wrong.append(f"epsilon = {epsilon} at delta = {delta:g}")
        if run.noise_multipliers[-1] == 0 and epsilon < math.inf and run.batches.design in ("full", "poisson", "without_replacement"):
            wrong.append(f"epsilon = {epsilon} though nothing follows the last step")
        if law is not None and epsilon < math.inf:
            truth = exact_delta(run, law, epsilon)
            if truth > delta * (1 + 1e-6) + 1e-12:
                wrong.append(f"{certificate.theorem}: delta({epsilon:g}) = {truth:g} > {delta:g}")
    return wrong


def rises(run: lethe.Run) -> list[str]:
    """Whether twice the noise raises epsilon by more than the grids do on which laws of shuffled batches are rounded."""
    if run.noise_multipliers.max() > 1e100:
        return []
    less, more = (lethe.certify(each, DELTAS[0], allow_large_delta=True).epsilon for each in (run, run.with_noise_scaled(2.0)))
    return [f"twice the noise raises epsilon from {less:g} to {more:g}"] if more > less * 1.01 else []


def exact_law(run: lethe.Run) -> Law | None:
    """The law of the last iterate's shift in units of its noise, for linear losses; None where it is not known."""
    parts = run.regularisers
    if run.loss.kind not in LINEAR_KINDS or any(part.kind != "ridge" for part in parts) or run.pass_weights is not None:
        return None
    if run.batches.cap is not None or run.bounds_differences_only:
        return None
    steps, slots, design = run.total_steps, run.steps_per_pass, run.batches.design
    shrinks = 1.0 + run.step_sizes * run.strong_convexity
    # A step's noise and move are shrunk by every later proximal step; by its own, both alike.
    with np.errstate(all="ignore"):
        logs = np.concatenate((np.cumsum(np.log(shrinks)[::-1])[::-1][1:], [0.0]))
        weights = np.exp(-logs)
        largest = float((weights * run.noise_stds).max())
        noise = largest * math.sqrt(float(np.sum(np.square(weights * run.noise_stds / largest)))) if largest > 0 else 0.0
        moves = weights * run.sensitivities / run.touch_factor / noise if noise > 0 else np.full(steps, np.inf)
    if not np.isfinite(moves).all() or moves.sum() > 1e6:
        return None
    if design == "full":
        return np.array([moves.sum()]), np.ones(1)
    if design in ("cyclic", "shuffled_once", "balls_in_bins"):
        sums = np.array([moves[slot::slots].sum() for slot in range(min(slots, steps))])
        if design == "cyclic":
            return np.array([sums.max()]), np.ones(1)
        return np.append(sums, 0.0), np.append(np.full(sums.size, 1 / slots), max(0.0, 1 - sums.size / slots))
    if design == "shuffled":
        passes = -(-steps // slots)
        if slots**passes > MOST_PATTERNS:
            return None
        padded = np.append(moves, np.zeros(passes * slots - steps)).reshape(passes, slots)
        shifts = [sum(row[place] for row, place in zip(padded, places, strict=True)) for places in product(range(slots), repeat=passes)]
        return np.array(shifts), np.full(len(shifts), 1 / len(shifts))
    chance = run.batch_size / run.records
    if np.ptp(moves) == 0:
        counts = np.arange(steps + 1)
        return counts * moves[0], stats.binom.pmf(counts, steps, chance)
    if 2**steps > MOST_PATTERNS:
        return None
    patterns = np.array(list(product((0, 1), repeat=steps)))
    drawn = patterns.sum(axis=1)
    return patterns @ moves, chance**drawn * (1 - chance) ** (steps - drawn)


def exact_delta(run: lethe.Run, law: Law, epsilon: float) -> float:
    """The larger of the two divergences at epsilon of the mixtures: at +m against -m where the record is replaced, else against 0."""
    shifts, weights = law
    kept = weights > 1e-18
    shifts, weights = shifts[kept], weights[kept]
    replaced = run.neighbours == "replace_one"
    other, other_weights = (-shifts, weights) if replaced else (np.zeros(1), np.ones(1))
    if shifts.size == 1:
        return float(lethe.guarantees.GDP(float(shifts[0] - other[0])).delta(epsilon)) * (1 - 1e-9)
    grid = _grid(np.concatenate((shifts, other)))
    one, two = _log_density(grid, shifts, weights), _log_density(grid, other, other_weights)
    both = [np.exp(first) * -np.expm1(np.minimum(epsilon + second - first, 0.0)) for first, second in ((one, two), (two, one))]
    # The smaller end of every cell: an excess that sets in within a cell counts from the next one on.
    return max(float(np.minimum(excess[1:], excess[:-1]) @ np.diff(grid)) for excess in both)


def _log_density(grid: np.ndarray, centres: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return special.logsumexp(-0.5 * np.square(grid[:, None] - centres), axis=1, b=weights) - 0.5 * math.log(2 * math.pi)


def _grid(centres: np.ndarray) -> np.ndarray:
    """Points within nine deviations of some centre, a hundredth of a deviation apart, and nothing between."""
    places = np.unique(np.round(centres[:, None] / 0.01) + np.arange(-900, 901))
    return places * 0.01


def fuzz(first: int, runs: int, *, seconds: float = math.inf) -> tuple[Counter[str], list[str]]:
    """So many runs, one in ten of them ordinary: what came of them, and what is wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    started = time.monotonic()
    for seed in range(first, first + runs):
        if time.monotonic() - started > seconds:
            break
        document = (extreme_document if seed % ORDINARY_EVERY else ordinary_document)(seed)
        begun = time.process_time()
        try:
            run = lethe.Run.from_document(document)
            found = violations(run) + (rises(run) if seed % ORDINARY_EVERY == 0 else [])
            counts["compared with a truth" if exact_law(run) is not None else "certified"] += 1
        except LetheError:
            counts["refused"] += 1
            continue
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        if time.process_time() - begun > SLOW:
            found.append(f"it took {time.process_time() - begun:.0f} s")
        wrong += [f"seed {seed}: {one}\n    {json.dumps(document)}" for one in found]
    return counts, wrong


def main() -> int:
    """Fuzz, print what is wrong, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", lethe.LargeDeltaWarning)
    total: Counter[str] = Counter()
    failures = 0
    for begun in range(arguments.first, arguments.first + arguments.runs, CHUNK):
        counts, wrong = fuzz(begun, min(CHUNK, arguments.first + arguments.runs - begun))
        total += counts
        failures += len(wrong)
        print("\n".join([*wrong, f"to seed {begun + CHUNK}: {dict(total)}, {failures} wrong"]), flush=True)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
