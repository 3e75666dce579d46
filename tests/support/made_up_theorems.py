"""Theorems that state what no theorem does, of each standing: what a comparison has to say of them."""

import math
from typing import ClassVar, Literal

import lethe
from lethe.certificates.findings import Finding, fails, holds
from lethe.certificates.parts import Citation
from lethe.theorems.base import SOUND, Bound, Soundness, Standing, Theorem


class Fake(Theorem):
    """Says `mu` of every run with at least `least` steps, whatever that is worth."""

    statement: ClassVar[str] = "A made-up bound."
    formula: ClassVar[str] = "0"
    needs: ClassVar[str] = "nothing"
    covers: ClassVar[Literal["last", "all"]] = "last"
    citations: ClassVar[tuple[Citation, ...]] = (Citation(key="fake", text="Nobody."),)

    def __init__(self, name: str, mu: float, soundness: Soundness = "sound", least: int = 0) -> None:
        self.name = name  # pyright: ignore[reportAttributeAccessIssue]
        self.mu, self.soundness, self.least = mu, soundness, least

    def _examine(self, run: lethe.Run) -> tuple[Finding, ...]:
        short, far = (fails(name, f"{name} [b] fails", source="steps", remedy="") for name in ("length", "size"))
        return (holds("sky", "blue"),) if run.total_steps >= self.least else (short, far)

    def _bound(self, run: lethe.Run) -> Bound:
        return Bound(guarantee=lethe.guarantees.GDP(self.mu))

    def standing_on(self, run: lethe.Run) -> Standing:
        return SOUND if self.soundness == "sound" else Standing(soundness=self.soundness, why=f"it is {self.soundness}")


class Growing(Fake):
    """Bounds nothing where the noise is small."""

    def __init__(self) -> None:
        super().__init__("growing", 1.0)

    def _bound(self, run: lethe.Run) -> Bound:
        return Bound(guarantee=lethe.guarantees.GDP(1.0 if run.noise_multipliers.min() > 1 else math.inf))


CLAIMS: tuple[Soundness, ...] = ("refuted", "one-sided", "proof-gap", "lower-bound")
FAKES = (
    *(Fake(f"tiny-{soundness}", 1e-3, soundness) for soundness in CLAIMS),
    Fake("huge", 50.0),
    Fake("shadow", 60.0, "dominated"),
    Fake("long", 0.5, "refuted", least=1000),
    Fake("longer", 0.5, "refuted", least=1000),
)
