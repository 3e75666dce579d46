"""Words of the field that a certificate uses, in a few plain ones."""

from __future__ import annotations

_THEOREMS = {
    "optimal-shift": "only the final model is seen, so that noise added later also covers what earlier steps learned; Lethe's own theorem",
    "holder-shift": "later noise hides part of what earlier steps learned, also with a loss whose gradient changes abruptly",
    "windowed": "batches are drawn in secret, and later noise hides part of what earlier steps learned",
    "sampled-gaussian": "nobody knows which steps used a record, because every batch is drawn in secret",
    "balls-in-bins": "nobody knows which batch of a pass a record is in",
    "composition": "what each step gives away is added up",
    "correlated-noise": "each step takes back part of the noise before it; every iterate may be seen",
    "correlated-bins": "each step takes back part of the noise before it, and nobody knows in which bin a record is",
    "correlated-sampled": "each step takes back part of the noise before it, and nobody knows at which of its steps a record was drawn",
    "budget-filter": "what each step gives away is added up, and training stops before it is more than the budget",
}

_TERMS = (
    ("last iterate", "last iterate", "the final weights: those after the last step."),
    (
        "projected to norm",
        "projected to norm",
        "a record whose row of features is longer is shortened to that length; Lethe's models do the same when they predict.",
    ),
    (
        "curvature",
        "curvature",
        "how fast the gradient of the loss can change when the weights change. Below 0: the loss is not convex.",
    ),
    (
        "smoothness",
        "smoothness",
        "the largest curvature. With a convex loss, a step of at most 2/smoothness on the same records never moves two models further "
        "apart; a larger one may spread the difference that one record made.",
    ),
    ("worst slot", "worst slot", "nobody relies on which batch holds the record: the number is that of the worst place in a pass."),
    ("[by lethe", "[by ...]", "the code that made it so. The seal, where there is one, says of which version it was."),
)


def proved_by(theorem: str) -> str:
    """The name of a theorem, with its idea in a few words where it is one of Lethe's own."""
    idea = _THEOREMS.get(theorem)
    return theorem if idea is None else f"{theorem} ({idea})"


def explained_terms(text: str) -> tuple[tuple[str, str], ...]:
    """(term, what it means) of every term that occurs in the text, in a fixed order."""
    return tuple((term, words) for sign, term, words in _TERMS if sign in text)
