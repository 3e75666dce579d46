r"""Liang et al. 2025, Figures 1 and 2: which runs, how often, and what theory says of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from lethe.accounting.certify import certify
from lethe.run.batches import Poisson
from lethe.run.losses import Smooth, Unknown
from lethe.run.regularisers import Ball
from lethe.run.run import Run
from lethe.theorems.literature.liang_2025 import Liang2025Bounded, Liang2025Unbounded

DELTA = 1e-5
STEP_SIZE = 0.1
SMOOTHNESS = 1.0
"""L, declared: nobody knows it of these networks."""
LEVEL = 0.05
SHARES = (0.05, 0.1, 0.25)
"""Of all candidates, guessed IN and as many OUT: declared here, so in advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    r"""How much noise, and how gradients are clipped.

    Args:
        name: what the panel is called.
        clip_norm: C.
        noise_std: $\sigma$ of each coordinate of the mean gradient over b members, the same for all batch sizes.
    """

    name: str
    clip_norm: float
    noise_std: float


PUBLISHED = Noise(name="noise as published", clip_norm=20.0, noise_std=0.002)
CERTIFIABLE = Noise(name="noise that certifies", clip_norm=1.0, noise_std=0.06)
"""The least certificate drawn is below 10, so that an audit has something to contradict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One curve: b expected members in a batch, the diameter D of the domain (None: all of space), and the noise."""

    batch_size: int
    diameter: float | None
    noise: Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of a figure is computed.

    Args:
        candidates: m of each model; about half are members.
        shadows: models that the attack learns from.
        repeats: audited models of each setting, with candidates, shadow models and noise of their own.
        batch_sizes: b, each at most m/2.
        diameters: D.
        noises: one panel each.
        epochs: at which the model is attacked, increasing.
        attack_steps: of each attack network.
        network: "small", or "resnet18" as in the paper.
    """

    candidates: int
    shadows: int
    repeats: int
    batch_sizes: tuple[int, ...]
    diameters: tuple[float | None, ...] = (None,)
    noises: tuple[Noise, ...] = (PUBLISHED, CERTIFIABLE)
    epochs: tuple[int, ...]
    attack_steps: int
    network: Literal["small", "resnet18"] = "small"

    @property
    def settings(self) -> Iterator[Setting]:
        """Noise by noise, the curves of a panel."""
        for noise in self.noises:
            for batch_size in self.batch_sizes:
                for diameter in self.diameters:
                    yield Setting(batch_size=batch_size, diameter=diameter, noise=noise)

    @property
    def visits(self) -> int:
        """Expected records in all batches of all networks: what the time goes with."""
        return self.repeats * (1 + self.shadows) * sum(map(self.visits_of_one, self.settings))

    def visits_of_one(self, setting: Setting) -> int:
        """Of one network."""
        return 2 * setting.batch_size * self.steps_per_epoch(setting) * self.epochs[-1]

    @property
    def guesses(self) -> tuple[tuple[int, int], ...]:
        """Of all candidates of a setting together, how many are guessed IN and how many OUT."""
        counts = dict.fromkeys(max(1, int(share * self.candidates * self.repeats)) for share in SHARES)
        return tuple((count, count) for count in counts)

    def run(self, setting: Setting, epochs: int) -> Run:
        r"""The run that is executed, of all m candidates, with those left out zeroed.

        A batch of b expected members is one of 2b expected candidates. The sum is divided by that 2b, so the step size and the noise are
        twice as large, and the iterates are those of $\eta$, b and $\sigma$.
        """
        size = 2 * setting.batch_size
        return Run(
            records=self.candidates,
            batches=Poisson(size=size),
            steps=epochs * self.steps_per_epoch(setting),
            step_size=2.0 * STEP_SIZE,
            clip_norm=setting.noise.clip_norm,
            noise_multiplier=setting.noise.noise_std * setting.batch_size / setting.noise.clip_norm,
            loss=Unknown() if setting.diameter is None else Smooth(smoothness=SMOOTHNESS),
            regulariser=None if setting.diameter is None else Ball(radius=0.5 * setting.diameter),
            release="last",
            neighbours="zero_out",
        )

    def steps_per_epoch(self, setting: Setting) -> int:
        """ceil(m / 2b), which is the paper's ceil(n / b)."""
        return math.ceil(self.candidates / (2 * setting.batch_size))


QUICK_1 = Plan(candidates=500, shadows=2, repeats=4, batch_sizes=(25, 50, 125), epochs=(5, 10, 20, 40), attack_steps=500)
FULL_1 = Plan(
    candidates=20_000,
    shadows=10,
    repeats=10,
    batch_sizes=(100, 200, 300, 400, 600, 1000),
    epochs=tuple(range(50, 401, 50)),
    attack_steps=10_000,
    network="resnet18",
)
QUICK_2 = replace(QUICK_1, repeats=3, batch_sizes=(25,), diameters=(6.0, 10.0, 20.0))
FULL_2 = replace(FULL_1, batch_sizes=(100, 400), diameters=(20.0, 60.0, 100.0), epochs=tuple(range(100, 1001, 100)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """What is said of a run from above.

    Args:
        published: the paper's curve: equation (12), or the smaller of that and (14).
        published_by: the equation.
        certificate: the smallest epsilon proved here.
        certificate_by: the theorem.
    """

    published: float
    published_by: str
    certificate: float
    certificate_by: str


def theory(run: Run) -> Theory:
    """The paper's bound, minimised over its free constants, and ours, both at DELTA."""
    claims = {"(12)": Liang2025Unbounded().bound(run).guarantee.epsilon(DELTA)}
    if run.regulariser is not None:
        claims["(14)"] = Liang2025Bounded().bound(run).guarantee.epsilon(DELTA)
    least = min(claims, key=lambda name: claims[name])
    certificate = certify(run, DELTA)
    return Theory(published=claims[least], published_by=least, certificate=certificate.epsilon, certificate_by=certificate.theorem)
