"""How true the probabilities of private classifiers are: generated classes of which one is rare, by every mechanism.

    python benchmarks/calibration.py [--seeds 5] [--results FILE]

One record's contribution set to zero, delta = 1e-6. Seeds draw the noise; the records of a set are the same for all. Each line of the file
has the log-loss on records set aside, that of the constant rate and of scikit-learn's regression without privacy, the mean probability of
the last class over its rate, and of bins of predicted probabilities how many records they have, the mean, and what share came true.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from calibration_page import EDGES, EPSILONS, MECHANISMS, RESULTS, SETS
from resumable import read_lines
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from stored_results import append

import lethe.estimators as private

_RECORDS, _TESTED = 20_000, 40_000
Data = tuple[np.ndarray, np.ndarray, float]


def _drawn(chance: np.random.Generator, odds: np.ndarray) -> np.ndarray:
    return (chance.random(len(odds)) < 1.0 / (1.0 + np.exp(-odds))).astype(int)


@cache
def generated(name: str) -> Data:
    """Features, labels and a bound on the length of a row."""
    chance, count = np.random.default_rng(SETS.index(name)), _RECORDS + _TESTED
    if name == "uniform, 7 %":
        rows = chance.uniform(-1.0, 1.0, (count, 60))
        return rows, _drawn(chance, rows @ np.r_[1.0, -1.0, 0.5, np.zeros(57)] - 2.9), 4.5
    if name == "correlated, 2 %":
        rows = chance.standard_normal((count, 10)) @ chance.standard_normal((10, 10)) / np.sqrt(10.0)
        return rows, _drawn(chance, rows @ np.r_[1.0, 0.8, -0.6, np.zeros(7)] - 5.4), 3.5
    if name == "categories, 8 %":
        codes = chance.integers(0, 6, (count, 4))
        rows = np.concatenate([(codes == one).astype(float) for one in range(6)] + [chance.lognormal(0.0, 0.5, (count, 2)) / 4.0], axis=1)
        # Not linear in the rows: two categories that only matter together.
        both = (codes[:, 0] == 1) & (codes[:, 1] == 2)
        return rows, _drawn(chance, rows @ np.linspace(-1.2, 1.2, rows.shape[1]) + 1.5 * both - 3.45), 2.2
    if name == "clusters, 30 %":
        labels = (chance.random(count) < 0.3).astype(int)
        centres = chance.standard_normal((2, 20)) * 0.35
        return centres[labels] + chance.standard_normal((count, 20)), labels, 5.0
    if name == "normal, 50 %":
        rows = chance.standard_normal((count, 12))
        return rows, _drawn(chance, rows @ np.linspace(-0.6, 0.6, 12)), 3.5
    rows = chance.standard_normal((count, 12))  # three classes
    odds = rows @ chance.standard_normal((12, 3)) * 0.4 + np.log([0.9, 0.08, 0.02])
    return rows, np.argmax(odds + chance.gumbel(size=odds.shape), axis=1), 3.5


@cache
def without_privacy(name: str) -> tuple[float, float]:
    """Log-loss of scikit-learn's regression, and of the constant rates."""
    rows, labels, _ = generated(name)
    tested = labels[_RECORDS:]
    shares = np.bincount(labels[:_RECORDS]) / _RECORDS
    model = LogisticRegression(C=100.0, max_iter=1000).fit(rows[:_RECORDS], labels[:_RECORDS])
    return log_loss(tested, model.predict_proba(rows[_RECORDS:])), log_loss(tested, np.tile(shares, (_TESTED, 1)))


def trained(name: str, mechanism: str, epsilon: float, seed: int) -> dict[str, Any]:
    """A line of the results."""
    rows, labels, norm = generated(name)
    options = private.EstimatorOptions(mechanism=mechanism)
    model = private.LogisticRegression(
        epsilon=epsilon,
        delta=1e-6,
        feature_norm=norm,
        classes=np.unique(labels),
        options=options,
        random_state=seed,
        seed_noise=True,
    ).fit(rows[:_RECORDS], labels[:_RECORDS])
    chances, tested = model.predict_proba(rows[_RECORDS:]), labels[_RECORDS:]
    last, own = chances[:, -1], tested == chances.shape[1] - 1
    places = np.digitize(last, EDGES[1:-1])
    plain, constant = without_privacy(name)
    return {
        "data": name,
        "mechanism": mechanism,
        "took": model.mechanism_,
        "epsilon": epsilon,
        "seed": seed,
        "log_loss": log_loss(tested, chances),
        "not_private": plain,
        "constant": constant,
        "auc": roc_auc_score(own, last),
        "rate": float(own.mean()),
        "ratio": float(last.mean() / own.mean()),
        "bins": [[int(at.sum()), last[at].mean(), own[at].mean()] for one in range(13) if (at := places == one).any()],
    }


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    done = {(row["data"], row["mechanism"], row["epsilon"], row["seed"]) for row in read_lines(asked.results)}
    for seed, name, epsilon, mechanism in itertools.product(range(asked.seeds), SETS, EPSILONS, MECHANISMS):
        if (name, mechanism, epsilon, seed) in done or (name == SETS[-1] and mechanism not in MECHANISMS[:2]):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row = trained(name, mechanism, epsilon, seed)
        append(asked.results, row)
        print(name, mechanism, epsilon, seed, f"{row['log_loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
