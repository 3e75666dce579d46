"""Batches in which some of the other records are replaced, for comparisons."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Generator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from lethe.errors import InputError
from lethe.train.core.comparison import ALLOWED, BATCH_STATISTICS, chance, close, halves, sample
from lethe.train.model_state.outputs import has_rows, shapes_of_a_record

_FEW = 8  # records that pass through a model by themselves
_FAR = 1e4  # in units of the largest number that the records hold: no branch that only outliers take is left out


def few_of(records: int) -> int:
    """How many of a batch's records pass through a model by themselves."""
    return min(records, _FEW)


def opposed(replaced: Tensor, few: int) -> Tensor:
    """A random half of a few places, with the first and the last place in it where they are not in the other half, of more places.

    What one place of a batch does to all others is then seen in the one or in the other.

    Args:
        replaced: truth values, shape (B,).
        few: of how many places, at most B.
    """
    if few == len(replaced):
        return ~replaced
    found = chance.choice(halves(few, replaced.device))
    if few > 2:
        found[0], found[-1] = not bool(replaced[0]), not bool(replaced[-1])
        if bool(found.all()) or not bool(found.any()):
            found[1 + chance.randrange(few - 2)] ^= True
    return found


def extremes(rows: Sequence[Tensor], usable: Sequence[int]) -> list[int]:
    """Of whole numbers, such as of pictures or tokens: the record whose largest is smallest, and the one whose smallest is largest.

    What a model makes of the largest or smallest number of its batch (a scale, a length) is another thing of these records alone; of half
    a batch it mostly is not, and there is no number far out to put in the others' place.

    Args:
        rows: of a batch, shapes (B, ...).
        usable: the records to choose among.
    """
    real = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)
    whole = [
        entry.detach().reshape(len(entry), -1) for entry in rows if entry.dtype not in real and not entry.is_complex() and entry.numel()
    ]
    if not whole or not usable:
        return []
    found = max(whole, key=lambda entry: int(entry.max()) - int(entry.min()))[list(usable)]
    return list(dict.fromkeys([usable[int(found.amax(1).argmin())], usable[int(found.amin(1).argmax())]]))


def some_of(replaced: Tensor) -> Tensor:
    """A random half of the places where `replaced` says so; the only one or none, at random."""
    places = replaced.nonzero()[:, 0].tolist()
    found = torch.zeros_like(replaced)
    found[sample(places, (len(places) + chance.randrange(2)) // 2)] = True
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Given:
    """The arguments of a call of a model.

    Args:
        args, kwargs: of the call.
        records: B.
        precision: the coarsest arithmetic that the model computed in.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    records: int
    precision: torch.dtype

    def rows(self) -> list[Tensor]:
        """The tensors with one entry a record."""
        return [entry for entry in tree_flatten((self.args, self.kwargs), is_leaf=_whole)[0] if has_rows(entry, self.records)]

    def mapped(self, replace: Callable[[Tensor], Tensor], records: int | None = None) -> Given:
        """A copy with every tensor of `rows` replaced."""
        args, kwargs = tree_map(lambda entry: replace(entry) if has_rows(entry, self.records) else entry, self._pair(), is_leaf=_whole)
        return Given(args=args, kwargs=kwargs, records=self.records if records is None else records, precision=self.precision)

    def taken(self, rows: list[int]) -> Given:
        """A copy for some of the records alone."""
        return self.mapped(lambda entry: entry[rows], len(rows))

    def few(self) -> Given:
        """A copy for some of the records, at random."""
        return self.taken(sample(range(self.records), _FEW))

    def called(self, model: nn.Module) -> Any:
        """What the model makes of a copy of the arguments, containers included: what it writes into them is lost."""
        args, kwargs = tree_map(lambda entry: _copy(entry) if isinstance(entry, Tensor) else entry, self._pair(), is_leaf=_whole)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the call that is checked will say the same
            return model(*args, **kwargs)

    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return [entry for entry in tree_flatten(self._pair())[0] if isinstance(entry, Tensor)]

    def _pair(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.args, self.kwargs


@dataclass(frozen=True, slots=True, eq=False)
class Few:
    """A few records' numbers in the batch, the call of them alone, the seeds of their pass, their outputs, and why there are none."""

    records: list[int]
    given: Given
    seeds: frozenset[int]
    outputs: list[Tensor]
    reason: str | None


def _whole(entry: Any) -> bool:
    return isinstance(entry, PackedSequence)  # its rows are no records, whatever their number


def _copy(entry: Tensor) -> Tensor:
    copied = entry.detach().clone()
    return copied.requires_grad_() if entry.requires_grad else copied


def with_nothing(entry: Tensor, replaced: Tensor) -> Tensor:
    """NaN where `replaced` says so; whole numbers as they are."""
    return _filled(entry, replaced, torch.tensor(float("nan")))


def with_large_numbers(entry: Tensor, replaced: Tensor) -> Tensor:
    """Finite numbers far beyond all others, of either sign, where `replaced` says so; whole numbers as they are."""
    if not entry.is_floating_point():
        return entry
    size = min(_FAR * (1 + _largest(entry.detach())), torch.finfo(entry.dtype).max / 64)
    return _filled(entry, replaced, torch.tensor([chance.choice((-size, size)) for _ in range(len(entry))]))


def _largest(entry: Tensor) -> float:
    """The largest absolute value of its finite numbers."""
    if not entry.numel():
        return 0.0
    found = torch.stack(torch.aminmax(entry)).abs().max()
    return float(found if bool(found.isfinite()) else torch.where(torch.isfinite(entry), entry, 0).abs().max())


def with_copies(entry: Tensor, replaced: Tensor, record: int) -> Tensor:
    """A batch in which some rows are copies of one record's.

    Args:
        entry: shape (B, ...).
        replaced: which rows, truth values of shape (B,).
        record: whose row is copied, from 0.
    """
    copied = entry.clone()
    copied[replaced] = entry[record]
    return copied


def _filled(entry: Tensor, replaced: Tensor, filler: Tensor) -> Tensor:
    if not entry.is_floating_point():
        return entry
    shape = (-1, *[1] * (entry.dim() - 1))
    return torch.where(replaced.view(shape).to(entry.device), filler.to(entry).view(shape), entry)


def require_same(
    told: Sequence[Tensor],
    records: list[int],
    batch: Sequence[Tensor],
    precision: torch.dtype,
    comparison: str,
    *,
    places: Sequence[int] | None = None,
) -> None:
    """Refuse outputs of some records that are not those in their batch; where they have another shape, a record alone says as much.

    Args:
        told: shapes (len(records), ...), or longer ones that hold these at `places`.
        records: their places in the batch.
        batch: the outputs in it, shapes (B, ...).
        precision: the coarsest arithmetic that the model computed in.
        comparison: what they were among in place of the batch, for the error.
        places: of the records in `told`; None: all in their order.
    Raises:
        InputError: they differ by more than rounding.
    """
    at = range(len(records)) if places is None else places
    if shapes_of_a_record(told) != shapes_of_a_record(batch):
        return
    for one, before in zip(told, batch, strict=True):
        if all(torch.equal(one[place], before[record]) for place, record in zip(at, records, strict=True)):
            continue  # which takes no copies to see
        same = close(one[list(at)], before[records], before, ALLOWED, precision)
        if not bool(same.all()):
            raise depends_on_others(records[int((~same).nonzero()[0, 0])], f"the record in its batch against {comparison}")


def depends_on_others(record: int, comparison: str) -> InputError:
    """The error for a record whose outputs do."""
    return InputError(
        f"the model's output for record {record} depends on the other records of its batch.",
        source=f"the clipper's self-check: {comparison}",
        remedy=BATCH_STATISTICS,
    )


def require_seeds(told: Set[int], known: Set[int] | None, comparison: str) -> None:
    """Refuse a model that seeds a generator by more than each record: what is drawn may look alike, as masks by a threshold do.

    Args:
        told: the seeds of a pass of some records, see `Quiet.seeds`; a model that seeds by each record by itself tells fewer.
        known: of the batch; None: nothing is known.
        comparison: what the records were among, for the error.
    Raises:
        InputError: one is none of the batch's.
    """
    if known is not None and not told <= known:
        raise InputError(
            "what the model draws for a record depends on the other records of its batch: it seeds a random generator by the batch.",
            source=f"the clipper's self-check: the seeds in the batch against {comparison}",
            remedy="seed generators with a constant before training, and draw from them without seeding them again.",
        )


@contextmanager
def embeddings_replaced(layers: Collection[nn.Module], records: int, replace: Callable[[Tensor], Tensor]) -> Generator[None]:
    """Within this context the outputs of embedding layers are replaced, since there is no NaN among tokens.

    Args:
        layers: the embedding layers.
        records: B; outputs without B rows are left alone.
        replace: (output) -> the output to use instead.
    """

    def replaced(module: nn.Module, args: Any, output: Any) -> Any:
        return replace(output) if has_rows(output, records) else None

    handles = [layer.register_forward_hook(replaced) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def embeddings_of_one_record(model: nn.Module) -> Generator[set[nn.Module]]:
    """Within: the model is given one record; the embedding layers whose every input has one row: those of tokens, not of positions."""
    found: set[nn.Module] = set()
    other: set[nn.Module] = set()

    def looked_at(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        first = next((entry for entry in (*args, *kwargs.values()) if isinstance(entry, Tensor)), None)
        single = first is not None and len(first) == 1 if first is not None and first.dim() else False
        (found if single and has_rows(output, 1) else other).add(module)

    layers = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    handles = [layer.register_forward_hook(looked_at, with_kwargs=True) for layer in layers]
    try:
        yield found
    finally:
        found -= other
        for handle in handles:
            handle.remove()


def careful_numbers(model: nn.Module, given: Given) -> AbstractContextManager[Any]:
    """`CarefulNumbers` where a GPU takes part; a CPU raises an error of its own."""
    tensors = (*model.parameters(), *model.buffers(), *given.tensors())
    return nullcontext() if all(tensor.device.type == "cpu" for tensor in tensors) else CarefulNumbers()


_INDEX = 4096  # whole numbers below it may be made on a GPU, as of positions


class CarefulNumbers(TorchDispatchMode):
    """Refuses to make whole numbers, or chances, of what may be NaN or far out of range: a GPU does not survive it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and what keeps the compiler out imports it, which takes seconds

    _INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    _DRAWN = ("multinomial", "bernoulli")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out one operation."""
        name = func.overloadpacket.__name__
        if name in self._DRAWN and any(isinstance(entry, Tensor) and not bool(((entry >= 0) & (entry <= 1)).all()) for entry in args[:1]):
            raise ValueError("it draws with chances that are none")
        result = func(*args, **(kwargs or {}))
        if name == "_to_copy" and args[0].is_floating_point() and result.dtype in self._INTEGERS and not _harmless(args[0]):
            raise ValueError("it turns real numbers into whole ones")
        return result


def _harmless(tensor: Tensor) -> bool:
    """Whether whole numbers may be made of it: on a CPU an index that is none is an error, on a GPU the end."""
    tensor = tensor.detach()
    return tensor.device.type == "cpu" or not tensor.numel() or bool((tensor.abs() < _INDEX).all())
