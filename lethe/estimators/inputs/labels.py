"""Labels of a classification, and the public list of classes they are among."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from lethe.calculus.domains import outside
from lethe.errors import InputError
from lethe.estimators.inputs.faults import is_missing, missing_targets
from lethe.mechanisms.base import Array

Labels = np.ndarray[Any, Any]
_KINDS = {"U": "text", "T": "text", "S": "bytes", "M": "dates", "m": "durations", **dict.fromkeys("biuf", "numbers")}


def public_labels(classes: Any, y: Any) -> tuple[Labels, Array, str]:
    """The classes sorted, the place of every label among them, and how the classes are known.

    Args:
        classes: the public list; None: read off y, which then counts as declared.
        y: labels, shape (n,).
    Raises:
        InputError: missing or mixed labels, fewer than two classes, or a label that is not in the public list.
        ValueError: scikit-learn's, for what are no labels, such as fractions.
    """
    labels = column_or_1d(y, warn=True)
    kind = _kind(labels)
    if kind is None:
        raise missing_targets() if any(map(is_missing, labels)) else _mixed(labels)
    check_classification_targets(labels)
    if classes is None:
        known, places = np.unique(labels, return_inverse=True)
        if len(known) < 2:
            raise InputError(
                f"y: got 1 class, {_plain(known)}; a classifier needs at least 2 classes.",
                source="the argument y",
                remedy="give the classes that could occur as the parameter classes; not all of them need to occur",
            )
        return known, places.astype(np.float64), "class labels read off the data and declared to be public"
    known = _declared(classes)
    wanted = _kind(known)
    if kind != wanted:
        raise InputError(
            f"y: got {kind}, such as {_plain(labels)}; the public classes are {wanted}: {', '.join(map(repr, known[:5].tolist()))}"
            f"{', ...' if len(known) > 5 else ''}.",
            source="the argument y and the parameter classes",
            remedy="write the labels of both in the same way",
        )
    places = np.searchsorted(known, labels).clip(max=len(known) - 1)
    strange = known[places] != labels
    if np.any(strange):
        first = int(np.argmax(strange))
        raise InputError(
            f"y[{first}] = {_plain(labels[first:])}; it is not in the public list of classes.",
            source="the parameter classes",
            remedy="list every class that could occur",
        )
    return known, places.astype(np.float64), "class labels given as public"


def _declared(classes: Any) -> Labels:
    needed = "a list of at least two different labels, all text or all numbers"
    try:
        given = np.asarray(classes)
    except (TypeError, ValueError):
        raise outside("classes", classes, needed) from None
    if given.ndim != 1 or given.size < 2 or _kind(given) is None or any(map(is_missing, given)) or len(np.unique(given)) != given.size:
        raise outside("classes", classes, needed)
    return np.sort(given)


def _kind(labels: Labels) -> str | None:
    """What labels are, in a word; None for objects other than text."""
    if labels.dtype.kind != "O":
        return _KINDS.get(labels.dtype.kind)
    return "text" if all(isinstance(label, str) for label in labels) else None


def _mixed(labels: Labels) -> InputError:
    kinds = sorted({type(label).__name__ for label in labels[:1000]})
    return InputError(
        f"y: Unknown label type: objects ({', '.join(kinds)}); labels need to be all text or all numbers.",
        source="the argument y",
        remedy="convert them, such as by y.astype(str)",
    )


def _plain(labels: Labels) -> str:
    """The first label as it is written in Python."""
    return repr(labels[:1].tolist()[0])
