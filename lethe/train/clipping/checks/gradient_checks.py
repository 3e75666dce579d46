"""Self-check of gradients: the layer rules against plain autograd, for single records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.clipping.anchors import unaccumulated
from lethe.train.clipping.checks.scaled_losses import ScaledInTurn, check_scaled, knows, powers_of_two
from lethe.train.clipping.hooks import Recording
from lethe.train.clipping.record_gradients import GradientSite, gradient_sites, require_apart, usable_records
from lethe.train.clipping.rules.parts import Part, Rows, Stacked, squares_of
from lethe.train.clipping.shared import Shared
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.core.comparison import ALLOWED, sample

_TRACED = 2  # records with gradients other than 0, whose gradients are compared with those of plain autograd
_BESIDES = 0.01  # of a whole gradient, what is allowed to be off as much as what is in one parameter
_STRICTER = 0.5  # what is allowed of a sum of records, of what is allowed of one: no record may be further off than by itself
_WEIGHTS = (1.0, -0.5, 0.25)  # of the records that one backward pass is shared by: what is another's is told from what is one's own
_UNHEARD = 0.1  # of what is allowed of the sum of these, the most that all others add to it
_FAINTEST = -64  # the power of 2 by which the others' losses are scaled, at least: float32 still holds their gradients from 1e-16 on


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


def check_gradients(
    parts: Mapping[nn.Parameter, Part], losses: Tensor, counted: Tensor | None, recording: Recording, *, summed: bool = False
) -> Seen:
    r"""Compare single records' gradients with those of plain autograd, on the same graph: the same dropout masks, the same losses.

    One backward pass serves them all: of $\sum_j v_j \ell_j$ over the chosen records it must give $\sum_j v_j g_j$ with the $g_j$ of the
    rules, and each of these must be as long as the rules measured it. Only where that fails, or is not finite, is each asked for alone.

    The same pass is of all other records' losses as well, with weights so small that rounding hides their gradients in the parameters;
    but none in a layer's output is hidden in another record's rows: see `check_scaled`.

    Args:
        parts: what the rules tell of each parameter.
        losses: shape (B,), with the parameters in their graph.
        counted: shape (B,); None: all.
        recording: of the forward pass, attached.
        summed: see `check_scaled`.
    Raises:
        InputError: they disagree, or records mix.
    """
    with torch.no_grad():
        squares = {parameter: part.squared_norms() for parameter, part in parts.items()}
    usable = usable_records(losses, counted)
    chosen = _chosen(usable, squares)
    sites = list(gradient_sites(recording))
    compared = _Compared(_ByTheRules(parts, squares), sites, losses, recording)
    together = dict(zip(chosen, _WEIGHTS, strict=False))
    weights = _weights(together, usable, squares, recording) if summed and knows(sites, losses, counted, recording) else None
    in_turn = None if weights is None else ScaledInTurn(sites, weights, recording)
    agreed = bool(chosen) and compared.agree(together, weights, in_turn)
    if not agreed:
        for record in chosen:
            compared.require(record)
    if in_turn is None or not agreed or not in_turn.agrees:
        check_scaled(losses, counted, recording, summed=summed)
    heard = compared.heard
    return Seen(records=compared.records, heard=frozenset(heard), silent=frozenset(compared.present - heard))


class _ByTheRules:
    """What the rules tell of some records: weighted sums of their gradients, each one's gradient, and their norms as they were measured."""

    def __init__(self, parts: Mapping[nn.Parameter, Part], squares: Mapping[nn.Parameter, Tensor]) -> None:
        self._parts, self._squares = parts, squares

    def summed(self, parameter: nn.Parameter, weights: Mapping[int, float]) -> Tensor:
        """The sum of the records' gradients with these weights, of the parameter's shape."""
        if (part := self._parts.get(parameter)) is None:
            return torch.zeros_like(parameter)
        asked = torch.zeros(len(self._squares[parameter]), dtype=torch.float64, device=parameter.device)
        for record, weight in weights.items():
            asked[record] = weight
        with torch.no_grad():
            return part.weighted_sum(asked).reshape(parameter.shape).to(part.dtype)

    def formed(self, parameter: nn.Parameter, records: Iterable[int]) -> list[Tensor]:
        """Each record's gradient."""
        part = self._parts.get(parameter)
        if part is not None and _forms_few(part):
            with torch.no_grad():
                rows = part.formed(torch.tensor(list(records), device=parameter.device), part.dtype)
            return [row.reshape(parameter.shape) for row in rows]
        return [self.summed(parameter, {record: 1.0}) for record in records]

    def norm(self, parameter: nn.Parameter, record: int) -> float:
        """The norm of its gradient."""
        squares = self._squares.get(parameter)
        return 0.0 if squares is None else max(float(squares[record]), 0.0) ** 0.5


def _forms_few(part: Part) -> bool:
    """Whether it forms some records' gradients without forming all."""
    if isinstance(part, Shared | Stacked):
        return all(map(_forms_few, part.parts))
    return isinstance(part, Rows) or type(part).formed is not Part.formed


class _Compared:
    """Comparisons of records' gradients by the rules with plain autograd's, and what was seen in them."""

    def __init__(self, rules: _ByTheRules, sites: Sequence[GradientSite], losses: Tensor, recording: Recording) -> None:
        self._rules, self._sites, self._losses, self._recording = rules, sites, losses, recording
        self.records = 0
        self.heard: set[nn.Parameter] = set()
        self.present: set[nn.Parameter] = set()

    def agree(self, chosen: Mapping[int, float], weights: Tensor | None, in_turn: ScaledInTurn | None) -> bool:
        """Whether the weighted sum of some records' gradients is plain autograd's, and each as long as it was measured.

        Args:
            chosen: the records, and their weights.
            weights: of all records, hardly any of the others; None: of none of them.
            in_turn: is shown the gradients of all of them on the way.
        Raises:
            InputError: the losses touch the rows of other records; only where these have no weight.
        """
        touched, plain = self._plain(chosen) if weights is None or in_turn is None else self._shown(weights, in_turn)
        if not all(gradient is None or bool(torch.isfinite(gradient).all()) for gradient in plain):
            return False
        whole, audible, heard = _size(plain), dict.fromkeys(chosen, False), set[nn.Parameter]()
        for parameter, gradient in zip(self._recording.found.names, plain, strict=True):
            expected = torch.zeros_like(parameter) if gradient is None else gradient
            expected = expected.to(torch.promote_types(expected.dtype, torch.float32))
            size, apart = _length(expected), -expected
            for (record, weight), told in zip(chosen.items(), self._rules.formed(parameter, chosen), strict=True):
                length = _length(told)
                if not abs(length - self._rules.norm(parameter, record)) <= _STRICTER * self._allowed(parameter, length, whole):
                    return False
                if length > 0:
                    audible[record] = True
                    heard.add(parameter)
                apart = apart.add(told, alpha=weight)
            together = self._rules.summed(parameter, chosen) - expected
            if not max(_length(apart), _length(together)) <= _STRICTER * self._allowed(parameter, size, whole):
                return False
        if weights is None:
            self._require_apart(touched, chosen)
        self.present |= {own for own, gradient in zip(self._recording.found.names, plain, strict=True) if gradient is not None}
        self.heard |= heard
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
            told, norm = self._rules.summed(parameter, {record: 1.0}), self._rules.norm(parameter, record)
            size = float(expected.double().norm())
            allowed = self._allowed(parameter, size, whole)
            error, gap = float((told.double() - expected.double()).norm()), abs(norm - size)
            if not (error <= allowed and gap <= allowed):
                raise UnfollowedError(
                    f"the gradient of record {record} in {name} is off by {max(error, gap):.3g} from plain autograd's, of norm {size:.3g}.",
                    source="the clipper's self-check",
                    remedy="look for a layer or a loss that mixes records or does not keep them along the first dimension, for a weight "
                    "that is read outside its layer, or for a hand-written rule that is wrong; a penalty on the weights belongs into the "
                    "optimiser (weight_decay); if there is nothing of the kind, begin with a batch of another size: this one may be as "
                    "long as another dimension.",
                    lasting=False,
                )
        self._require_apart(touched, (record,))
        self._note(plain)
        self.records += any(gradient is not None and bool((gradient != 0).any()) for gradient in plain)

    def _plain(self, weights: Mapping[int, float]) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
        """Autograd's gradients of the weighted sum of some records' losses, at the sites and in the parameters."""
        total = torch.stack([weight * self._losses[record] for record, weight in weights.items()]).sum()
        return self._asked(total, [site.place for site in self._sites])

    def _shown(self, weights: Tensor, in_turn: ScaledInTurn) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
        """The same of the weighted sum of all losses; those at the sites are looked at and let go."""
        with in_turn.watched():
            told, plain = self._asked((self._losses * weights.to(self._losses)).sum(), in_turn.leaves)
        in_turn.note(told)
        return (), plain

    def _asked(self, total: Tensor, places: Sequence[Any]) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
        wanted = [*places, *self._recording.found.names]
        with unaccumulated(self._recording.watched()):
            found = torch.autograd.grad(total, wanted, retain_graph=True, allow_unused=True)
        told = [None if gradient is None else gradient.to_dense() for gradient in found]  # of an embedding it may be sparse
        return told[: len(places)], told[len(places) :]

    def _allowed(self, parameter: nn.Parameter, size: float, whole: float) -> float:
        return _tolerance(parameter, self._recording) * (size + _BESIDES * whole)

    def _require_apart(self, touched: Sequence[Tensor | None], records: Iterable[int]) -> None:
        asked = torch.zeros(len(self._losses), dtype=torch.bool, device=self._losses.device)
        asked[list(records)] = True
        require_apart(self._sites, touched, asked)

    def _note(self, plain: Sequence[Tensor | None]) -> None:
        known = {parameter: own for parameter, own in zip(self._recording.found.names, plain, strict=True) if own is not None}
        self.present |= known.keys()
        self.heard |= {parameter for parameter, gradient in known.items() if bool((gradient != 0).any())}


def _size(plain: Sequence[Tensor | None]) -> float:
    return sum(_length(gradient) ** 2 for gradient in plain if gradient is not None) ** 0.5


def _length(gradient: Tensor) -> float:
    if not gradient.numel():
        return 0.0
    wide = gradient.detach().to(torch.promote_types(gradient.dtype, torch.float32))
    as_it_lies = wide.permute(sorted(range(wide.dim()), key=wide.stride, reverse=True))
    return float(squares_of(as_it_lies.reshape(1, -1))[0]) ** 0.5


def _tolerance(parameter: nn.Parameter, recording: Recording) -> float:
    return max(ALLOWED[recording.precision], ALLOWED[parameter.dtype])


def _weights(chosen: Mapping[int, float], usable: Tensor, squares: Mapping[nn.Parameter, Tensor], recording: Recording) -> Tensor | None:
    r"""The weights of all records' losses, shape (B,), float64: powers of two, so small that those that are not chosen add at most
    `_UNHEARD` of what is allowed of a parameter; None where such small numbers would vanish, or nothing is known to measure them by."""
    if recording.precision is torch.float16 or not squares:
        return None
    norms = torch.stack([square.to(usable.device).double().clamp(min=0) for square in squares.values()]).sum(0).sqrt()
    known = torch.where(torch.isfinite(norms) & usable, norms, 0.0)
    lengths = [abs(weight) * float(known[record]) for record, weight in chosen.items()]
    if not any(lengths):
        return None
    allowed = _STRICTER * _BESIDES * min(_tolerance(parameter, recording) for parameter in squares)
    room = _UNHEARD * allowed * min(length for length in lengths if length)
    found = powers_of_two(len(usable), usable.device) * usable
    share = room / float((known * found.abs()).sum())
    if not 2.0**_FAINTEST <= share < math.inf:
        return None
    power = math.floor(math.log2(share))
    found *= 2.0**power
    for record, weight in chosen.items():
        found[record] = weight
    return found


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
