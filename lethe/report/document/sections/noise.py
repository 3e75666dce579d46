"""The noise schedule: where the noise of a run is, and how large."""

from __future__ import annotations

from lethe.certificates.findings import OPTIMISER
from lethe.report.document.model import Picture, Section, Table, Text
from lethe.report.document.subject import Subject
from lethe.report.document.wording import count, number
from lethe.run.noise.base import growths
from lethe.run.schedules import schedule_document

_ROWS = 8


def noise(subject: Subject) -> Section | None:
    """The section; None of what is no run."""
    run = subject.run
    if run is None:
        return None
    noisy = run.noisy_steps
    # Of correlated noise what a step has, which is more than what is drawn for it.
    grown = 1.0 if run.noise is None else growths(run.noise, run.total_steps)[noisy]
    levels = run.uncorrelated.noise_multipliers[noisy] * grown
    stds = run.uncorrelated.noise_stds[noisy] * grown
    sizes = run.step_sizes
    stride = max(1, -(-len(noisy) // _ROWS))
    shown_places = sorted({*range(0, len(noisy), stride), len(noisy) - 1})
    columns = [
        ("step", [count(int(noisy[place]) + 1) for place in shown_places]),
        ("noise multiplier", [number(float(levels[place])) for place in shown_places]),
        ("noise on the weights (standard deviation)", [number(float(stds[place])) for place in shown_places]),
        ("step size", [number(float(sizes[noisy[place]])) for place in shown_places]),
    ]
    if any(finding.name == OPTIMISER for finding in subject.findings):
        del columns[2]  # an optimiser of the caller's own makes something else of the noise than a plain gradient step does
    constant = float(levels.min()) == float(levels.max())
    at = "every step" if run.noise_at == "every_step" else "the last step of every pass, and of all"
    if len(noisy) == 1:
        words = f"Noise is added once, at step {count(int(noisy[0]) + 1)}, with the multiplier {number(float(levels[0]))}."
    else:
        words = f"Noise is added at {at}: {count(len(noisy))} of {count(run.total_steps)} steps" + (
            f", each time with the same multiplier {number(float(levels[0]))}." if constant else "."
        )
    if run.noise is not None:
        drawn = float(run.uncorrelated.noise_multipliers.max())
        words += (
            f" It is correlated over the steps ({run.noise.summary}): what is drawn for a step has the multiplier {number(drawn)}, and "
            "each step takes back part of the noise of the steps before it."
        )
    if float(levels.min()) == 0.0:
        words += " Where the multiplier is 0, there is no noise."
    blocks = (
        Text(
            f"{words} The multiplier is the standard deviation of the noise on the sum of a batch's gradients, in units of the longest "
            "gradient that a record may have."
        ),
        Picture(
            "Line plot. Across: steps. Up: noise multiplier of each step with noise; the table below has some of them.",
            "Noise multiplier of each step with noise.",
            lambda: _drawn([int(step) + 1 for step in noisy], levels.tolist()),
        ),
        Table(
            "Noise and step size",
            tuple(name for name, _ in columns),
            tuple(zip(*(values for _, values in columns), strict=True)),
            numbers=tuple(range(len(columns))),
        ),
    )
    stored = None if run.noise_multiplier is None else schedule_document(run.noise_multiplier)
    return Section(
        "noise", "Noise schedule", blocks, {"noise_at": run.noise_at, "noise_multiplier": stored, "steps_with_noise": len(noisy)}
    )


def _drawn(steps: list[int], levels: list[float]) -> str:
    from lethe.report.document.pictures import noise_picture  # pictures need the optional matplotlib

    return noise_picture(steps, levels)
