r"""Kong & Ribero, revised version, Tables 1 and 2: what each bound assumes, as printed, and what its theorem says of one and the same run.

The run is that of Figure 1 after E = 100 passes: $\lambda C/(b\sigma) = 1$, $\ell = 1000$.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import lethe
from lethe.calculus.guarantees import ZCDP
from lethe.run.batches import Cyclic, Poisson
from lethe.run.regularisers import Ball
from lethe.run.run import Run
from lethe.theorems.literature.kong_ribero_setting import theta
from lethe_experiments.base import Cell, Progress, Reproduction
from lethe_experiments.kong_ribero_figure_1 import (
    BATCH_SIZE,
    CLIP_NORM,
    DELTA,
    DIAMETER,
    NOISE_STD,
    RECORDS,
    STEP_SIZE,
    STEPS_PER_PASS,
    figure_letters,
    figure_run,
)

PASSES = 100
_CURVED = {"convex": (0.0, 1e4), "weakly convex": (1e2, 1e2)}  # m and M
_MOVE, _OF_ONE = STEP_SIZE * CLIP_NORM / (BATCH_SIZE * NOISE_STD), STEP_SIZE * CLIP_NORM / NOISE_STD
COLUMNS = (
    "bound",
    "assumptions",
    "losses",
    "rho_as_printed",
    "epsilon_as_printed",
    "theorem",
    "epsilon",
    "standing",
    "ours",
    "false_as_printed",
)
_KNOWN_Q = "h an indicator; Q known; Lipschitz gradients; small steps; no clipping"
_OWN = "Lipschitz gradients; small steps; disjoint batches"


class Line(NamedTuple):
    """A row of Table 2 for one kind of loss."""

    bound: str
    assumptions: str  # the labels of Table 1, in words
    losses: str
    rho: float | None  # as printed, over alpha; None: a numerical procedure
    theorem: str
    run: Run

    def false_below(self, last_touch: float) -> bool:
        """Whether less than that is printed of a run in a fixed order."""
        return self.rho is not None and self.rho < last_touch and isinstance(self.run.batches, Cyclic)


def kong_ribero_tables(progress: Progress | None = None) -> Reproduction:
    """Kong & Ribero 2025, Tables 1 and 2: assumptions and bounds of the literature on the last iterate, as printed and as they hold.

    Args:
        progress: told (lines done, lines in all).
    """
    return Reproduction(
        name="kong-ribero-tables",
        title="Kong & Ribero 2025, Tables 1 and 2: bounds on the last iterate after 100 passes, as printed and as their theorems have them",
        source="Kong, Ribero, Privacy of the last iterate in cyclically-traversed DP-SGD on nonconvex composite losses, arXiv:2407.05237, "
        "revised version, Tables 1 and 2.",
        shape="bounds",
        columns=COLUMNS,
        rows=compared_rows(_lines(), 2.0 * _MOVE**2, progress),
        notes=(
            "Printed bounds are asymptotic, their constants left out: rho_as_printed takes them at their word, and those below 2, what the "
            "last touch of a record in the last batch costs where steps forget, are false of the run.",
            "epsilon is at delta = 1e-5: what the named theorem proves of the run; ours, the smallest that Lethe proves of it. Where a "
            "theorem does not apply to the run, its standing says refused: Theorem 11 of Mironov et al. and Altschuler & Talwar need more "
            "noise, Chien & Li full batches.",
            f"The paper leaves open m, M, Q and d_h. Here convex losses have M = 1e4, others m = M = 100; Q = C; d_h = {DIAMETER:g}, ten "
            "standard deviations of a step's noise.",
            "kappa of L_lambda is that of equation (11) of the paper.",
        ),
    )


def compared_rows(lines: Sequence[Line], last_touch: float, progress: Progress | None) -> tuple[tuple[Cell, ...], ...]:
    """A row of COLUMNS a line.

    What is printed is false of a run in a fixed order if it is less than the `last_touch` of a record costs, as rho, where everything
    before it is forgotten.
    """
    rows: list[tuple[Cell, ...]] = []
    for count, line in enumerate(lines, 1):
        compared = lethe.compare(line.run, DELTA, allow_large_delta=True)
        row = next(row for row in compared.rows if row.theorem == line.theorem)
        printed = None if line.rho is None else ZCDP(line.rho).epsilon(DELTA)
        about = (line.bound, line.assumptions, line.losses, line.rho, printed, line.theorem)
        rows.append((*about, row.epsilon, row.status, compared.certificate.epsilon, line.false_below(last_touch)))
        if progress is not None:
            progress(count, len(lines))
    return tuple(rows)


def _lines() -> list[Line]:
    short, numeric = PASSES / STEPS_PER_PASS, None
    convex = figure_run(*_CURVED["convex"], CLIP_NORM, PASSES, clip=False)
    sampled, domain = convex.replace(batches=Poisson(size=BATCH_SIZE)), Ball(radius=DIAMETER / 2.0)
    cut = _OF_ONE**2 * min(short, DIAMETER / (CLIP_NORM * STEP_SIZE * RECORDS))
    few = "few orders, much noise"
    lines = [
        Line("Mironov et al. 2019, Section 3.3", "Poisson batches", "any", numeric, "sampled-gaussian", sampled),
        Line("Mironov et al. 2019, Theorem 11", f"Poisson batches; {few}", "any", short * _MOVE**2, "mironov-2019", sampled),
        Line("Feldman et al. 2018, Theorem 35", f"{_KNOWN_Q}; batches of one", "convex", short * _OF_ONE**2, "feldman-2018", convex),
        Line(
            "Altschuler & Talwar 2022, Theorem 3.1",
            f"{_KNOWN_Q}; a bounded domain; {few}",
            "convex",
            cut,
            "altschuler-talwar-2022",
            sampled.replace(regulariser=domain),
        ),
    ]
    for losses, curved in _CURVED.items():
        letters = figure_letters((PASSES,), *curved)
        growth, square = float(letters.lipschitz("revised")), letters.log_square("revised")
        plain, clipped = (figure_run(*curved, size * CLIP_NORM, PASSES, clip=size > 1.0) for size in (1.0, 10.0))
        bounded = plain.replace(regulariser=domain)
        unclipped, with_clipping = (PASSES * float(theta(square + more, STEPS_PER_PASS)) * _OF_ONE**2 for more in (0.0, math.log(2.0)))
        if losses == "convex":
            unclipped = short * _MOVE**2
        wide = (growth * DIAMETER / NOISE_STD + _MOVE) ** 2
        hoelder = "Hölder gradients; Q known; a bounded domain; no clipping if convex"
        lines += [
            Line("Chua et al. 2024, Theorem 3.1", "disjoint batches", losses, 0.5 * PASSES * _MOVE**2, "chua-2024-fixed", plain),
            Line("Chien & Li 2024, Theorem A.1", hoelder, losses, numeric, "chien-li-2024", bounded),
            Line("Kong & Ribero, Theorem 2.2", f"{_OWN}; a bounded domain", losses, wide, "kong-ribero-2025-2.2", bounded),
            Line("Kong & Ribero, Theorem 2.3 (19)", f"{_OWN}; no clipping", losses, unclipped, "kong-ribero-2025-2.3-unclipped", plain),
            Line("Kong & Ribero, Theorem 2.3 (17)", _OWN, losses, with_clipping, "kong-ribero-2025-2.3-clipped", clipped),
        ]
    return lines
