"""Self-check of gradients: the layer rules against plain autograd, for single records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.record_gradients import GradientSite, gradient_sites, require_apart, usable_records
from lethe.train.clipping.rules.parts import Part
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import ALLOWED, sample

_TRACED = 2  # records with gradients other than 0, whose gradients are compared with those of plain autograd
_STRICTER = 0.5  # what is allowed of a sum of records, of what is allowed of one: no record may be further off than by itself
_WEIGHTS = (1.0, -0.75, 0.875)  # of the records that one backward pass is shared by: what is another's is told from what is one's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The result of a comparison of gradients.

    Args:
        records: how many records it compared whose gradient is finite and not 0.
        heard: parameters that one of them has a gradient in other than 0.
        silent: parameters in the graph of the losses whose gradient is 0 for each of them.
    """

    records: int
    heard: frozenset[nn.Parameter]
    silent: frozenset[nn.Parameter]


def check_gradients(parts: Mapping[nn.Parameter, Part], losses: Tensor, counted: Tensor | None, recording: Recording) -> Seen:
    r"""Compare single records' gradients with those of plain autograd, on the same graph: the same dropout masks, the same losses.

    One backward pass serves them all: of $\sum_j v_j \ell_j$ over the chosen records it must give $\sum_j v_j g_j$ with the $g_j$ of the
    rules, and each of these must be as long as the rules measured it. Only where that fails, or is not finite, is each asked for alone.

    Besides, that gradient must be exactly 0 at every other record's rows of every layer's output, which needs no tolerance; what mixes
    the chosen ones, or two of the others, is left to `check_scaled`.

    Args:
        parts: what the rules tell of each parameter.
        losses: shape (B,), with the parameters in their graph.
        counted: shape (B,); None: all.
        recording: of the forward pass, attached.
    Raises:
        InputError: they disagree, or records mix.
    """
    with torch.no_grad():
        squares = {parameter: part.squared_norms() for parameter, part in parts.items()}
    chosen = _chosen(usable_records(losses, counted), squares)
    rules = {record: _ByTheRules(parts, squares, record) for record in chosen}
    compared = _Compared(rules, list(gradient_sites(recording)), losses, recording)
    together = dict(zip(chosen, _WEIGHTS, strict=False))
    if not (chosen and compared.agree(together)):
        for record in chosen:
            compared.require(record)
    heard = compared.heard
    return Seen(records=compared.records, heard=frozenset(heard), silent=frozenset(compared.present - heard))


class _ByTheRules:
    """What the rules tell of one record: its gradient and its norm in a parameter."""

    def __init__(self, parts: Mapping[nn.Parameter, Part], squares: Mapping[nn.Parameter, Tensor], record: int) -> None:
        self._parts, self._squares, self._record = parts, squares, record

    def told(self, parameter: nn.Parameter) -> tuple[Tensor, float]:
        """The gradient, of the parameter's shape, and the norm that was measured."""
        if (part := self._parts.get(parameter)) is None:
            return torch.zeros_like(parameter), 0.0
        squares = self._squares[parameter]
        alone = torch.zeros(len(squares), dtype=torch.float64, device=parameter.device)
        alone[self._record] = 1.0
        with torch.no_grad():
            return part.weighted_sum(alone).reshape(parameter.shape), max(float(squares[self._record]), 0.0) ** 0.5


class _Compared:
    """Comparisons of records' gradients by the rules with plain autograd's, and what was seen in them."""

    def __init__(self, rules: Mapping[int, _ByTheRules], sites: Sequence[GradientSite], losses: Tensor, recording: Recording) -> None:
        self._rules, self._sites, self._losses, self._recording = rules, sites, losses, recording
        self.records = 0
        self.heard: set[nn.Parameter] = set()
        self.present: set[nn.Parameter] = set()

    def agree(self, weights: Mapping[int, float]) -> bool:
        """Whether the weighted sum of the records' gradients is plain autograd's, and each as long as it was measured.

        Raises:
            InputError: the losses touch the rows of other records.
        """
        touched, plain = self._plain(weights)
        if not all(gradient is None or bool(torch.isfinite(gradient).all()) for gradient in plain):
            return False
        whole, names = _size(plain), self._recording.found.names
        audible = dict.fromkeys(weights, False)
        for parameter, gradient in zip(names, plain, strict=True):
            expected = torch.zeros_like(parameter) if gradient is None else gradient
            error, size = -expected.double(), float(expected.double().norm())
            allowed = _STRICTER * self._allowed(parameter, size, whole)
            for record, weight in weights.items():
                told, norm = self._rules[record].told(parameter)
                length = float(told.double().norm())
                if not abs(length - norm) <= _STRICTER * self._allowed(parameter, length, whole):
                    return False
                audible[record] |= length > 0
                error += weight * told.double()
            if not float(error.norm()) <= allowed:
                return False
        self._require_apart(touched, weights)
        self._note(plain)
        self.records += sum(audible.values())
        return True

    def require(self, record: int) -> None:
        """Refuse a record whose gradient is not plain autograd's; nothing is learned where that is not finite.

        Raises:
            InputError: it is not, or touches the rows of other records.
        """
        touched, plain = self._plain({record: 1.0})
        if not all(gradient is None or bool(torch.isfinite(gradient).all()) for gradient in plain):
            return
        whole = _size(plain)
        for (parameter, name), gradient in zip(self._recording.found.names.items(), plain, strict=True):
            expected = torch.zeros_like(parameter) if gradient is None else gradient
            told, norm = self._rules[record].told(parameter)
            size = float(expected.double().norm())
            allowed = self._allowed(parameter, size, whole)
            error, gap = float((told.double() - expected.double()).norm()), abs(norm - size)
            if not (error <= allowed and gap <= allowed):
                raise UnfollowedError(
                    f"the gradient of record {record} in {name} is off by {max(error, gap):.3g} from plain autograd's, of norm {size:.3g}.",
                    source="the clipper's self-check",
                    remedy="look for a layer or a loss that mixes records or does not keep them along the first dimension, for a weight "
                    "that is read outside its layer, or for a hand-written rule that is wrong; if there "
                    "is none, begin with a batch of another size: this one may be as long as another dimension.",
                    lasting=False,
                )
        self._require_apart(touched, (record,))
        self._note(plain)
        self.records += any(gradient is not None and bool((gradient != 0).any()) for gradient in plain)

    def _plain(self, weights: Mapping[int, float]) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
        """Autograd's gradients of the weighted sum of the records' losses, at the sites and in the parameters."""
        wanted: list[Any] = [*(site.place for site in self._sites), *self._recording.found.names]
        with unaccumulated(self._recording.watched()):
            total = torch.stack([weight * self._losses[record] for record, weight in weights.items()]).sum()
            told = torch.autograd.grad(total, wanted, retain_graph=True, allow_unused=True)
        return told[: len(self._sites)], told[len(self._sites) :]

    def _allowed(self, parameter: nn.Parameter, size: float, whole: float) -> float:
        return max(ALLOWED[self._recording.precision], ALLOWED[parameter.dtype]) * (size + 0.01 * whole)

    def _require_apart(self, touched: Sequence[Tensor | None], records: Iterable[int]) -> None:
        asked = torch.zeros(len(self._losses), dtype=torch.bool, device=self._losses.device)
        asked[list(records)] = True
        require_apart(self._sites, touched, asked)

    def _note(self, plain: Sequence[Tensor | None]) -> None:
        known = {parameter: own for parameter, own in zip(self._recording.found.names, plain, strict=True) if own is not None}
        self.present |= known.keys()
        self.heard |= {parameter for parameter, gradient in known.items() if bool((gradient != 0).any())}


def _size(plain: Sequence[Tensor | None]) -> float:
    return sum(float(gradient.double().square().sum()) for gradient in plain if gradient is not None) ** 0.5


def _chosen(usable: Tensor, squares: Mapping[nn.Parameter, Tensor]) -> list[int]:
    """One record at random, and others that the rules give a gradient, since nothing is learned of two zeros.

    Records that the rules cannot measure add nothing, and are left out.
    """
    for square in squares.values():
        usable = usable & torch.isfinite(square).to(usable.device)
    first = sample(usable.nonzero()[:, 0].tolist(), 1)
    told = torch.stack([square.to(usable.device) > 0 for square in squares.values()]).any(0) if squares else torch.zeros_like(usable)
    everyone = (usable & told).nonzero()[:, 0].tolist()
    telling = sample([record for record in everyone if record not in first], _TRACED)
    return [*first, *telling[: _TRACED - len(set(first) & set(everyone))]]
