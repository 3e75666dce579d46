"""Lethe's epsilon against the best sound published one, on random runs: `python benchmarks/published_bounds.py [RUNS]` prints Markdown.

The runs are drawn from seeds, so nothing varies between machines but the last digits. A ratio of 2 means that the best published bound
says twice the epsilon; "nothing published" counts the runs of which only ours says anything finite.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.progress import track

import lethe
from lethe.accounting.certify import certificate_of, evaluate_theorems
from lethe.run.batches import DESIGNS
from lethe.run.participation import Participation
from lethe.theorems.composition import GaussianComposition
from lethe.theorems.registry import ALL, LITERATURE, OURS
from lethe.theorems.sampling import SampledGaussianMechanism

DELTA = 1e-5
# No published bound of a run knows groups of records.
DRAWN = tuple(name for name, design in DESIGNS.items() if design.participation is not Participation.DRAW_IN_PUBLIC_GROUP)
# Composition of every iterate and the numerical sampled Gaussian are everybody's: they are no gain of ours.
PUBLISHED = {theorem.name for theorem in (*LITERATURE, SampledGaussianMechanism(), GaussianComposition())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One run: what Lethe certifies, and the smallest epsilon of the published bounds that hold."""

    run: lethe.Run
    theorem: str
    epsilon: float
    published: str
    published_epsilon: float

    @property
    def ratio(self) -> float:
        """Published over ours; 1 where both are infinite or 0."""
        same = self.epsilon == self.published_epsilon
        return 1.0 if same else float(np.divide(self.published_epsilon, self.epsilon)) if self.epsilon > 0 else float("inf")


def random_run(seed: int) -> lethe.Run:
    """A run of the kind papers write about: constant steps and noise more often than not, noise that makes epsilon of order 1."""
    generator = np.random.default_rng(seed)
    design = DRAWN[seed % len(DRAWN)]
    records = int(generator.integers(60, 2000) if generator.random() < 0.9 else generator.integers(2, 60))
    size = max(1, int(records / generator.uniform(1, 60)))
    per_pass = 1 if design == "full" else records // size
    passes = max(1, int(10 ** generator.uniform(0.0, 2.5)) // (1 if design == "full" else max(1, per_pass // 10)))
    touches = passes * (1 if design not in ("poisson", "without_replacement") else max(1.0, (size / records) * per_pass))
    loss = _loss(generator)
    smoothness = float(loss.get("smoothness", 0.5))
    regulariser = _regulariser(generator)
    relations = ["replace_one", "zero_out"] + (["add_or_remove"] if "add_or_remove" in DESIGNS[design].neighbours else [])
    if loss["kind"] == "strongly_convex":
        relations = ["replace_one"]  # on a large domain only the difference of two such records' gradients is bounded
    step_size = float(generator.uniform(0.05, 1.0)) / smoothness
    noise_multiplier = float(np.sqrt(touches) * 10 ** generator.uniform(-0.2, 1.0)) + 0.3
    fields: dict[str, Any] = {
        "records": records,
        "batches": {"design": design} if design == "full" else {"design": design, "size": size},
        "passes": passes,
        "step_size": {"schedule": "exponential", "first": step_size, "ratio": 0.99} if generator.random() < 0.1 else step_size,
        "clip_norm": float(generator.uniform(0.2, 2.0)) if generator.random() < 0.4 else None,
        "noise_multiplier": noise_multiplier,
        "noise_at": "pass_ends" if generator.random() < 0.07 else "every_step",
        "loss": loss,
        "regulariser": regulariser,
        "release": "all" if generator.random() < 0.1 else "last",
        "neighbours": relations[generator.integers(len(relations))],
    }
    return lethe.Run(**fields)


def _loss(generator: np.random.Generator) -> dict[str, Any]:
    smoothness = float(10 ** generator.uniform(-1, 0.5))
    known = {"gradient_bound": 1.0, "smoothness": smoothness}
    kinds: list[dict[str, Any]] = [
        {"kind": "convex", **known},
        {"kind": "convex", **known},
        {"kind": "softmax_regression", "feature_norm": 1.0},
        {"kind": "logistic_regression", "feature_norm": 1.0},
        {"kind": "strongly_convex", "strong_convexity": smoothness * generator.uniform(0.001, 0.3), **known},
        {"kind": "weakly_convex", "weak_convexity": smoothness * 10 ** generator.uniform(-4, 0), **known},
        {"kind": "smooth", "gradient_bound": 1.0, "smoothness": smoothness * 0.1},
        {"kind": "holder", "gradient_bound": 1.0, "constant": smoothness * 0.1, "exponent": float(generator.uniform(0.2, 1.0))},
        {"kind": "unknown", "gradient_bound": 1.0},
    ]
    return kinds[generator.integers(len(kinds) - 1)] if generator.random() < 0.97 else kinds[-1]


def _regulariser(generator: np.random.Generator) -> Any:
    ball = {"kind": "ball", "radius": float(10 ** generator.uniform(-2.5, 1))}
    return [None, ball, ball, {"kind": "ridge", "strength": float(10 ** generator.uniform(-2, 0))}][generator.integers(4)]


def match(run: lethe.Run) -> Match:
    """Certify the run, and ask every published bound."""
    verdicts = evaluate_theorems(run, ALL)  # once: what is everybody's is Lethe's too
    certificate = certificate_of(run, DELTA, [verdict for verdict in verdicts if verdict.theorem in OURS])
    usable = [
        (verdict.bound.guarantee.epsilon(DELTA), verdict.theorem.name)
        for verdict in verdicts
        if verdict.theorem.name in PUBLISHED and verdict.usable and verdict.bound is not None
    ]
    epsilon, name = min(usable)
    return Match(run=run, theorem=certificate.theorem, epsilon=certificate.epsilon, published=name, published_epsilon=epsilon)


def table(matches: list[Match]) -> str:
    """Markdown: one line a batch design."""
    groups = {design: [one for one in matches if one.run.batches.design == design] for design in DRAWN}
    lines = [
        "| batches | runs | smaller in | median ratio there | largest | nothing published | best published bounds (runs) |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(name, group) for name, group in (*groups.items(), ("all", matches)) if group)])


def _line(name: str, group: list[Match]) -> str:
    better = [one.ratio for one in group if one.ratio > 1 + 1e-6]
    finite = [ratio for ratio in better if ratio < float("inf")]
    numbers = f"{median(finite):.3g} | {max(finite):.3g}" if finite else "- | -"
    names = ", ".join(f"{name} ({count})" for name, count in Counter(one.published for one in group).most_common(3))
    return f"| {name} | {len(group)} | {len(better)} | {numbers} | {len(better) - len(finite)} | {names} |"


def main() -> None:
    """Match as many random runs as asked for, 200 by default."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(table([match(random_run(seed)) for seed in track(range(count), description="matching")]))


if __name__ == "__main__":
    main()
