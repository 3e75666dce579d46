"""The error for models that the engine cannot follow layer by layer; record by record it can train them all the same."""

from __future__ import annotations

from lethe.errors import InputError

PER_LAYER = "per layer"
"""Gradients of records are told by the layers' rules, of a whole batch at once."""

RECORD_BY_RECORD = "record by record"
"""Each record passes through the model alone, and its gradient is the one that plain autograd gives; slower, and needs no rule."""

_OTHERWISE = "or train record by record, which needs no rule and is slower: `lethe.train.fit` does so by itself, PrivacyEngine with "


class UnfollowedError(InputError):
    """The gradients of the records of a batch cannot be told apart; of one record there is nothing to tell apart.

    It does not say that records meet: what says so is no such error, since no way of computing gradients would help.

    Args:
        what, source, remedy: see LetheError.
        lasting: whether another batch would be refused as well.
        doubtful: records may as well meet in the model: that has to be ruled out by another comparison.
    """

    def __init__(
        self, what: str, *, source: str | None = None, remedy: str | None = None, lasting: bool = True, doubtful: bool = False
    ) -> None:
        if not doubtful:
            otherwise = _OTHERWISE + "physical_size=1, PrivateTrainer with per_device_train_batch_size=1."
            remedy = otherwise if remedy is None else f"{remedy.rstrip('.')}; {otherwise}"
        super().__init__(what, source=source, remedy=remedy)
        self.lasting, self.doubtful = lasting, doubtful
