"""How numbers, relations, theorems and words of the field are said to a person. Bounds are rounded up, never down.

All sections of a report take their words from here, so that a number is rounded and a relation is called alike everywhere.
"""

import math
import re
from datetime import date
from decimal import ROUND_CEILING, Decimal

from lethe.calculus.upward_formatting import shown
from lethe.run.participation import NOUNS, Unit

RELATIONS = {
    "replace_one": "one record is replaced by any other one; the number of records is public",
    "zero_out": "one record is left out and its place kept empty; the number of records is public",
    "add_or_remove": "one record is added or removed; not even the exact number of records is told",
}
CHANGES = {
    "replace_one": "whether any one record was in the training data, or any other record in its place",
    "zero_out": "whether any one record was in the training data, or its place was empty",
    "add_or_remove": "whether any one record was in the training data or not",
}
SEEN = {"last": "the final model", "all": "the model after every step", "released": "what was released"}
MORE_THAN_SEEN = {
    "last": "a checkpoint, an average of several models, the optimiser's state, the loss on private data, or a best epoch chosen by it",
    "all": "the records, single gradients, batches, or the loss on private data",
    "released": "anything else that was computed from the records",
}
"""What `SEEN` does not cover."""
_THEOREMS = {
    "optimal-shift": "only the final model is seen, so that noise added later also covers what earlier steps learned; Lethe's own theorem",
    "holder-shift": "later noise hides part of what earlier steps learned, also with a loss whose gradient changes abruptly",
    "windowed": "batches are drawn in secret, and later noise hides part of what earlier steps learned",
    "sampled-gaussian": "nobody knows which steps used a record, because every batch is drawn in secret",
    "balls-in-bins": "nobody knows which batch of a pass a record is in",
    "random-allocation": "nobody knows which batch of each pass a record is in",
    "composition": "what each step gives away is added up",
    "correlated-noise": "each step takes back part of the noise before it; every iterate may be seen",
    "correlated-bins": "each step takes back part of the noise before it, and nobody knows in which bin a record is",
    "correlated-sampled": "each step takes back part of the noise before it, and nobody knows at which of its steps a record was drawn",
    "budget-filter": "what each step gives away is added up, and training stops before it is more than the budget",
}
_TERMS = {
    "last iterate": "the final weights: those after the last step.",
    "projected to norm": "a longer row of features is shortened to that length; Lethe's models do the same when they predict.",
    "curvature": "how fast the gradient of the loss can change when the weights change. Below 0: the loss is not convex.",
    "smoothness": "the largest curvature. With a convex loss, a step of at most 2/smoothness on the same records never moves two models "
    "further apart; a larger one may spread the difference that one record made.",
    "worst slot": "nobody relies on which batch holds the record: the number is that of the worst place in a pass.",
    "[by ...]": "the code that made it so. The seal, where there is one, says of which version it was.",
}


def of_unit(words: str, unit: Unit) -> str:
    """A sentence about one record or records, said of the unit of privacy: "one record is left out" becomes "one user is left out"."""
    return re.sub(r"\brecord(s?)\b", rf"{NOUNS[unit][0]}\1", words)


def day(when: date) -> str:
    """A date, such as "29 November 2026"."""
    return f"{when.day} {when:%B %Y}"


def percent(probability: float) -> str:
    """A probability, rounded up, such as "57.3 %"."""
    if probability >= 1.0:
        return "100 %"
    scaled = Decimal(repr(probability)) * 100
    decimals = max(0, 2 - scaled.adjusted()) if scaled else 0
    rounded = scaled.quantize(Decimal(1).scaleb(-min(decimals, 12)), rounding=ROUND_CEILING)
    return f"{float(rounded):.3g} %" if rounded < 100 else "100 %"


def factor(epsilon: float) -> str:
    """e to the epsilon, rounded up."""
    # exp is correct to a few units in the last place.
    value = math.exp(epsilon) * (1.0 + 1e-15) if epsilon < 700.0 else math.inf
    digits = shown(value, 4)
    if not 1e3 <= float(digits) < 1e15:
        return digits
    return f"{float(digits):.0f}" if float(digits) < 1e4 else f"{float(digits):,.0f}"


def times(many: int, thing: str, things: str) -> str:
    """A count with its noun of one or of several, such as "1 pass" or "2 passes"."""
    return f"{many:,} {thing if many == 1 else things}"


def proved_by(theorem: str) -> str:
    """The name of a theorem, with its idea in a few words where it is one of Lethe's own."""
    idea = _THEOREMS.get(theorem)
    return theorem if idea is None else f"{theorem} ({idea})"


def explained_terms(text: str) -> tuple[tuple[str, str], ...]:
    """(term, what it means) of every term that occurs in the text, in a fixed order."""
    return tuple((term, words) for term, words in _TERMS.items() if term.replace("...]", "lethe") in text)
