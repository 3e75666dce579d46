"""Scales and shifts of a batch's columns, from batch to batch: those of a batch's own mean, deviation or largest number change."""

from __future__ import annotations

import torch
from torch import Tensor

_CHANGED = 1e-3  # of a scale or a shift, from batch to batch
_SPENT = 2  # numbers of a column that a scale and a shift explain whatever they are
_RECORDS = 16  # changed alike, in all batches together, before anything is said: of a few, each may have been inverted by a toss of its own


class Scalings:
    """Whether the columns of all batches are scaled and shifted, each by numbers that its records share and that change between batches.

    Where once a batch is not, as by what is drawn for each record, nothing is said any more.

    Args:
        allowed: of what a scale and a shift leave unexplained, in parts of the largest number of a column.
    """

    def __init__(self, allowed: float) -> None:
        self._allowed = allowed
        self._first: Tensor | None = None
        self._records = 0
        self._changed = self._refuted = False

    def differ(self, rows: Tensor, own: Tensor) -> bool:
        """Look at a batch.

        Args:
            rows: that the model is given, shape (B, columns).
            own: of the loader.
        """
        rows, own = rows.double(), own.double()
        rows, own = rows[(there := own.abs().amax(1) > 0)], own[there]  # without padding
        if self._refuted or len(own) <= _SPENT or not bool(torch.isfinite(rows).all() & torch.isfinite(own).all()):
            return False
        found = self._shared(rows, own)
        if found is None:
            self._refuted = True
            return False
        told = found.isfinite().all(0)
        if not bool(told.any()):
            return False
        self._records += int((rows != own)[:, told].any(1).sum())
        if self._first is None or self._first.shape != found.shape:
            self._first = found
            return False
        both = self._first.isfinite().all(0) & told
        known = self._first[:, both]
        if known.numel() and not torch.allclose(found[:, both], known, rtol=_CHANGED, atol=_CHANGED * float(known.abs().max())):
            self._changed = True
        self._first = torch.where(self._first.isfinite(), self._first, found)
        return self._changed and self._records >= _RECORDS

    def _shared(self, rows: Tensor, own: Tensor) -> Tensor | None:
        """Scale and shift of each column, shape (2, columns), nan where too few numbers changed to tell; None: they are not shared."""
        means, told = own.mean(0), rows.mean(0)
        spread = (own - means).square().sum(0)
        varied = spread > (self._allowed * own.abs().amax(0)).square() * len(own)
        scales = ((own - means) * (rows - told)).sum(0) / spread
        unexplained = (told + scales * (own - means) - rows).abs().amax(0)
        if not bool(torch.where(varied, unexplained <= self._allowed * rows.abs().amax(0), True).all()):
            return None
        evident = varied & ((rows != own).sum(0) > _SPENT)
        return torch.where(evident, torch.stack([scales, told - scales * means]), torch.nan)
