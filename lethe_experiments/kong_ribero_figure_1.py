r"""Kong & Ribero, revised version, Figure 1: bounds on the last iterate as a function of the number of steps.

The caption fixes $\lambda = 10^{-5}$, $C = 10$, $\sigma = 10^{-5}$ (noise in parameter units), $b = 10$, $k = 10^4$ records and T up to
$10^5$, so that a pass is $\ell = 1000$ steps and $\lambda C/(b\sigma) = 1$: a swapped record moves one step by two standard deviations
of its noise. It varies m, M and Q without naming values, and no text says which; those drawn here are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP, ZCDP
from lethe.run.batches import Cyclic
from lethe.run.losses import Convex, WeaklyConvex
from lethe.run.regularisers import Ball
from lethe.run.run import Run
from lethe.theorems.literature.feldman_2018 import Feldman2018
from lethe.theorems.literature.kong_ribero_2025 import KongRibero2025BoundedDomain, clipped_rho, unclipped_rho
from lethe.theorems.literature.kong_ribero_setting import Letters
from lethe_experiments.base import Cell, Progress, Reproduction

STEP_SIZE = 1e-5
CLIP_NORM = 10.0
NOISE_STD = 1e-5
BATCH_SIZE = 10
RECORDS = 10_000
STEPS_PER_PASS = RECORDS // BATCH_SIZE
DELTA = 1e-5
DIAMETER = 10.0 * NOISE_STD  # d_h of Theorem 2.2, which the paper leaves open
PASSES = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100)
CURVATURES = (1e2, 1e3, 1e4)  # m = M of the left panel
GRADIENT_BOUNDS = (10.0, 30.0, 100.0)  # Q of the right panel: C, 3C, 10C
SMOOTHNESSES = (1e3, 1e4)  # M of the right panel, which matters to our bound where clipping acts

LEFT = "weakly convex, no clipping"
RIGHT = "convex, Q may differ from C"
_UNIT = (STEP_SIZE * CLIP_NORM / (BATCH_SIZE * NOISE_STD)) ** 2  # (lambda C / (b sigma))^2

COLUMNS = ("panel", "curve", "published_in", "m", "M", "Q", "steps", "passes", "rdp_over_alpha", "epsilon", "standing", "why", "ours")
_KAISSIS = "Kaissis et al. 2021"
_LOCAL = "Chua et al. 2024, Theorem 3.1"
_FELDMAN = "Feldman et al. 2018, Theorem 35"
_KONG = "Kong & Ribero 2025, Theorem 2.3"
_NOTES = (
    "The values of m, M and Q, and what the curves of the published figure are called, stand in its legend, which is part of a picture "
    "and could not be read. Chosen here: m = M (the case of gradients that are M-Lipschitz) = 1e2, 1e3, 1e4 on the left; "
    "Q = C, 3C, 10C and M = 1e3, 1e4 on the right.",
    "rdp_over_alpha, the RDP bound / alpha, is rho of epsilon(alpha) = rho alpha; ours is a Gaussian mechanism of mu, whose rho is "
    "mu^2/2. Epsilon is at delta = 1e-5: of ours by the exact conversion of mu, of the others by the best conversion of rho.",
    "RDP composition is read as 2T (lambda C/(b sigma))^2, a record counted at every step; composition over disjoint batches counts it "
    "once a pass. The caption has the constant of neither.",
    "Local DP and PABI are drawn twice: with the constant that holds for one record swapped, and, dotted, as Table 2 of the paper prints "
    "them. As printed they are false: where steps forget what came before, which their hypotheses allow, a record in the last batch loses "
    "2 (lambda C/(b sigma))^2 by its last touch, and they are below that for fewer than 4 and 20 passes.",
    "PABI does without clipping: its curve for Q > C is of a run that is not clipped, with the same noise.",
    "Theorem 2.2 needs a bounded domain, and the caption has none: it is drawn for d_h = 1e-4, ten standard deviations of a step's noise.",
    "Whole passes only, from the first.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a panel.

    Args:
        panel: LEFT or RIGHT.
        name: what it is called in the plot.
        published_in: where, "" for ours.
        weak_convexity, smoothness: m and M it is drawn for, None: any.
        gradient_bound: Q, as text, "" for any.
        rhos: RDP bound / alpha, one for each number of passes.
        epsilons: at DELTA, one for each number of passes.
        standing: "sound"; "dominated" by composition; "refuted": what is printed does not hold.
        why: the reason, for the last two.
        ours: whether it is Lethe's.
    """

    panel: str
    name: str
    published_in: str
    weak_convexity: float | None = None
    smoothness: float | None = None
    gradient_bound: str = ""
    rhos: tuple[float, ...]
    epsilons: tuple[float, ...] = field(default=())
    standing: str = "sound"
    why: str = ""
    ours: bool = False

    def rows(self, passes: Sequence[int]) -> list[tuple[Cell, ...]]:
        """Its part of the table."""
        epsilons = self.epsilons or tuple(ZCDP(rho).epsilon(DELTA) for rho in self.rhos)
        about = (self.panel, self.name, self.published_in, self.weak_convexity, self.smoothness, self.gradient_bound)
        return [
            (*about, STEPS_PER_PASS * count, count, rho, epsilon, self.standing, self.why, self.ours)
            for count, rho, epsilon in zip(passes, self.rhos, epsilons, strict=True)
        ]


def kong_ribero_figure_1(progress: Progress | None = None, *, passes: Sequence[int] = PASSES) -> Reproduction:
    """Kong & Ribero 2025, Figure 1: bounds on the last iterate of cyclic DP-SGD against the number of steps.

    Args:
        progress: told (curves done, curves in all).
        passes: the numbers of passes at which the curves are computed, increasing.
    Raises:
        InputError: a number of passes that no run can have.
    """
    settings = [(LEFT, m, m, CLIP_NORM) for m in CURVATURES]
    settings += [(RIGHT, 0.0, M, CLIP_NORM) for M in SMOOTHNESSES[-1:]]
    settings += [(RIGHT, 0.0, M, GRADIENT_BOUNDS[-1]) for M in SMOOTHNESSES]
    ours: list[Curve] = []
    for panel, m, smoothness, bound in settings:
        ours.append(_ours(panel, m, smoothness, bound, passes))
        if progress is not None:
            progress(len(ours), len(settings))
    curves = [curve for panel in (LEFT, RIGHT) for curve in (*_published(panel, passes), *(one for one in ours if one.panel == panel))]
    return Reproduction(
        name="kong-ribero-figure-1",
        title="Kong & Ribero 2025, Figure 1: bounds on the last iterate of cyclic DP-SGD against the number of steps",
        source="Kong, Ribero, Privacy of the last iterate in cyclically-traversed DP-SGD on nonconvex composite losses, arXiv:2407.05237, "
        "revised version, Figure 1.",
        shape="panels",
        columns=COLUMNS,
        rows=tuple(row for curve in curves for row in curve.rows(passes)),
        notes=_NOTES,
    )


def _published(panel: str, passes: Sequence[int]) -> list[Curve]:
    count = np.array(passes, dtype=np.float64)
    curves = [
        Curve(
            panel=panel,
            name="RDP composition, every step",
            published_in=_KAISSIS,
            rhos=_numbers(2.0 * count * STEPS_PER_PASS * _UNIT),
        ),
        Curve(panel=panel, name="composition, disjoint batches", published_in=_LOCAL, rhos=_numbers(2.0 * count * _UNIT)),
        Curve(
            panel=panel,
            name="local DP as printed",
            published_in="Kong & Ribero 2025, Table 2",
            rhos=_numbers(0.5 * count * _UNIT),
            standing="refuted",
            why="it counts lambda C/b a touch, and a swapped record moves 2 lambda C/b",
        ),
    ]
    if panel == LEFT:
        return curves + [curve for m in CURVATURES for curve in (_unclipped(panel, m, m, passes), _bounded(panel, m, m, passes))]
    curves += [_feldman(bound, passes) for bound in GRADIENT_BOUNDS]
    curves.append(
        Curve(
            panel=panel,
            name="PABI as printed, Q = 10",
            published_in="Kong & Ribero 2025, Table 2",
            weak_convexity=0.0,
            gradient_bound=f"{CLIP_NORM:g}",
            rhos=_numbers(count / STEPS_PER_PASS * (STEP_SIZE * CLIP_NORM / NOISE_STD) ** 2),
            standing="refuted",
            why="an asymptotic form for batches of one: it leaves out the last touch, which nothing amplifies",
        )
    )
    curves.append(
        Curve(
            panel=panel,
            name="KR (17), any Q",
            published_in=f"{_KONG} (17)",
            weak_convexity=0.0,
            rhos=_numbers(clipped_rho(figure_letters(passes, 0.0, max(SMOOTHNESSES)))),
            standing="dominated",
            why="never better than composition over disjoint batches",
        )
    )
    return [*curves, *(one(panel, 0.0, max(SMOOTHNESSES), passes) for one in (_unclipped, _bounded))]


def _bounded(panel: str, m: float, smoothness: float, passes: Sequence[int]) -> Curve:
    run = figure_run(m, smoothness, CLIP_NORM, 1, clip=False).replace(regulariser=Ball(radius=DIAMETER / 2.0))
    guarantee = KongRibero2025BoundedDomain().bound(run).guarantee
    assert isinstance(guarantee, ZCDP)
    return Curve(
        panel=panel,
        name=f"KR 2.2, d_h = {DIAMETER:g}, m = M = {m:g}" if panel == LEFT else f"KR 2.2, d_h = {DIAMETER:g}, Q = 10",
        published_in="Kong & Ribero 2025, Theorem 2.2",
        weak_convexity=m,
        smoothness=smoothness if panel == LEFT else None,
        gradient_bound=f"{CLIP_NORM:g}",
        rhos=(guarantee.rho,) * len(passes),
    )


def _unclipped(panel: str, m: float, smoothness: float, passes: Sequence[int]) -> Curve:
    return Curve(
        panel=panel,
        name=f"KR (19), m = M = {m:g}" if panel == LEFT else "KR (19), Q = 10",
        published_in=f"{_KONG} (19)",
        weak_convexity=m,
        smoothness=smoothness if panel == LEFT else None,
        gradient_bound=f"{CLIP_NORM:g}",
        rhos=_numbers(unclipped_rho(figure_letters(passes, m, smoothness))),
    )


def figure_letters(passes: Sequence[int], m: float, smoothness: float) -> Letters:
    """The caption's run after so many passes, in the paper's letters."""
    return Letters(
        step_size=STEP_SIZE,
        clip_norm=CLIP_NORM,
        batch_size=BATCH_SIZE,
        noise_std=NOISE_STD,
        weak_convexity=m,
        smoothness=smoothness,
        steps=np.array(passes) * STEPS_PER_PASS,
        steps_per_pass=STEPS_PER_PASS,
    )


def _feldman(bound: float, passes: Sequence[int]) -> Curve:
    guarantees = [Feldman2018().bound(figure_run(0.0, max(SMOOTHNESSES), bound, count, clip=False)).guarantee for count in passes]
    return Curve(
        panel=RIGHT,
        name=f"PABI, Q = {bound:g}",
        published_in=_FELDMAN,
        weak_convexity=0.0,
        gradient_bound=f"{bound:g}",
        rhos=tuple(guarantee.rho for guarantee in guarantees if isinstance(guarantee, ZCDP)),
    )


def _ours(panel: str, m: float, smoothness: float, bound: float, passes: Sequence[int]) -> Curve:
    clipped = bound > CLIP_NORM
    mus: list[float] = []
    for count in passes:
        guarantee = certify(figure_run(m, smoothness, bound, count, clip=clipped), DELTA, allow_large_delta=True).guarantee
        assert isinstance(guarantee, GDP)  # fixed batches and a fixed order: every theorem of ours gives one
        mus.append(guarantee.mu)
    right = f"any Q, M = {smoothness:g}" if clipped else f"Q = {bound:g}"
    return Curve(
        panel=panel,
        name=f"ours, m = M = {m:g}" if panel == LEFT else f"ours, {right}",
        published_in="",
        weak_convexity=m,
        smoothness=smoothness if panel == LEFT or clipped else None,
        gradient_bound="" if clipped else f"{bound:g}",
        rhos=tuple(0.5 * mu * mu for mu in mus),
        epsilons=tuple(GDP(mu).epsilon(DELTA) for mu in mus),
        ours=True,
    )


def figure_run(m: float, smoothness: float, bound: float, passes: int, *, clip: bool) -> Run:
    """The figure's run: one record swapped, the caption's noise whatever Q is."""
    unit = CLIP_NORM if clip else bound
    return Run(
        records=RECORDS,
        batches=Cyclic(size=BATCH_SIZE),
        passes=passes,
        step_size=STEP_SIZE,
        clip_norm=CLIP_NORM if clip else None,
        noise_multiplier=NOISE_STD * BATCH_SIZE / (STEP_SIZE * unit),
        loss=WeaklyConvex(weak_convexity=m, smoothness=smoothness, gradient_bound=bound)
        if m > 0
        else Convex(smoothness=smoothness, gradient_bound=bound),
        release="last",
        neighbours="replace_one",
    )


def _numbers(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
