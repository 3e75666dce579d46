"""Random documents of runs, the same for the same seed: ordinary ones, as people write them, and extreme ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers import batches as batches_of

from lethe.run.batches import DESIGNS

SIZED = tuple(name for name, design in DESIGNS.items() if "size" in design.model_fields)
ORDINARY_NOISE = (0.3, 0.5, 0.8, 1.0, 1.5, 3.0, 5.0, 10.0, 30.0)
EXTREMES = (0.0, 5e-324, 1e-308, 1e-250, 1e-30, 1e-9, 1.0, 1e9, 1e17, 1e30, 1e150, 1e250)


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
    design = "full" if generator.random() < 0.1 else str(generator.choice(SIZED))
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
