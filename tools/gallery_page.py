"""The pictures of the page docs/gallery.md, each below the command that draws it while the site is built."""

from pictures import drawn_by

AUDIT = "{subject: {kind: train, config: examples/train_digits.yaml}, runs: 200}"
PICTURES = (
    (
        "What every theorem says",
        "lethe compare examples/last_iterate.yaml --delta 1e-6 -o comparison",
        "comparison/comparison.png",
        "One line a theorem: the epsilon that it proves of this run; hollow marks are bounds that hold for something else.",
    ),
    (
        "How epsilon grows with the passes",
        "lethe compare examples/last_iterate.yaml --delta 1e-6 --over passes -o sweep",
        "sweep/comparison.png",
        "Epsilon against passes, one curve a theorem: composition grows, the last iterate's bound hardly does.",
    ),
    (
        "Where the noise goes",
        "lethe plan examples/last_iterate.yaml --epsilon 0.5 --delta 1e-6 --schedule auto --influence 0.999 --plot noise.png",
        "noise.png",
        "The noise of each step under every schedule, and how much privacy is spent by then.",
    ),
    (
        "Six ways to train",
        "lethe demo --seeds 2 -o demo",
        "demo/accuracy.png",
        "Test accuracy on digits at epsilon 1: fixed batches certified for the last iterate train as well as Poisson sampling.",
    ),
    (
        "What an audit found",
        "lethe audit audit.yaml --plot audit.png",
        "audit.png",
        "What an audit certifies from 200 trainings in each world: the lower bound lies below the claim, as it must.",
    ),
)


def gallery() -> str:
    """Headings, commands and pictures, as Markdown."""
    return "\n\n".join(
        f"## {heading}\n\n`{command}`\n\n{drawn_by(command, file, text, audit=AUDIT)}" for heading, command, file, text in PICTURES
    )
