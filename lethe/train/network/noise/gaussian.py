r"""Gaussian noise for many tensors at once, added in place, from PyTorch's or NumPy's generators. $\tau$ is its standard deviation.
`TrainingNoise` calls `add_to` once a step with the sums of clipped gradients; `CorrelatedNetworkNoise` draws from it, in pieces.
"""

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from lethe.calculus.domains import require_nonnegative
from lethe.errors import InputError
from lethe.train.clip.parts.row_sums import of_rows
from lethe.train.core.generators import state_digest
from lethe.train.core.tensors import checked_tensors

# Small enough for the cache; a GPU wants fewer, larger pieces.
_CPU_PIECE, _DEVICE_PIECE = 2**14, 2**22
ROUNDINGS = 1024
"""Units in the last place that noise must span to count as a Gaussian."""
# Enough for PyTorch's threads to share, and few enough for the cache.
_PAIRS = 2**16


class NetworkNoise:
    r"""Adds $N(0, \tau^2 I)$ to tensors in place, in one pass and with small buffers.

    All draws are made in float64, for float32 tensors too, and rounded once, when they are added. PyTorch's float32 normals are made
    of 24 random bits and never exceed $\sqrt{48\ln2} = 5.77$ standard deviations, so a large enough output has one possible cause. With
    $d$ coordinates and a change of norm $s$ spread over them, that costs a $\delta$ of about $2.4\cdot10^{-8}\sqrt d\,s/\tau$ a step:
    $8\cdot10^{-5}$ for 11 million parameters at $s = \tau$. float64 normals reach 8.5 standard deviations or more, where it is below
    $10^{-12}$.

    The generator decides how secret the noise is: neither kind is cryptographic, and the noise is a floating-point number, no exact
    Gaussian. Both are outside of what a certificate says. A NumPy generator is several times as fast on the CPU; it is used for noise only,
    and by nobody else at the same time.

    Attributes:
        device: where the noise is drawn, and where the tensors must be.

    `largest_piece` numbers are asked for at the most, if it is stated.

    It cannot be copied or pickled, nor used in a forked process: both would give the same numbers again.
    """

    def __init__(self, generator: np.random.Generator | torch.Generator, largest_piece: int = _DEVICE_PIECE) -> None:
        if not isinstance(generator, np.random.Generator | torch.Generator):
            raise InputError(
                f"generator of the noise: got {type(generator).__name__}; it needs a numpy.random.Generator or a torch.Generator.",
                remedy="use fresh_numpy_generator().",
            )
        self.device = generator.device if isinstance(generator, torch.Generator) else torch.device("cpu")
        self._piece = _CPU_PIECE if self.device.type == "cpu" else _DEVICE_PIECE
        self._generator = generator
        self._draw = (
            _NumpyNormals(generator, largest_piece).draw
            if isinstance(generator, np.random.Generator)
            else self._of_torch(generator, largest_piece)
        )
        self._lock, self._process = threading.Lock(), os.getpid()

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied."""
        raise InputError(
            "noise: a copy would add the same numbers to something else; their difference has no noise.",
            source="copy, deepcopy or pickle of a NetworkNoise, or of what holds one",
            remedy="make another NetworkNoise, of a generator of its own.",
        )

    def _of_torch(self, generator: torch.Generator, largest_piece: int) -> Callable[[int], Tensor]:
        """PyTorch's own normal numbers, in the way of `_NumpyNormals.draw`."""
        buffer = torch.empty(min(self._piece, largest_piece), dtype=torch.float64, device=generator.device)
        return lambda count: buffer[:count].normal_(generator=generator)

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise InputError(
                "noise: made in the process that this one was forked from, where it gives the same numbers.",
                source="fork, or multiprocessing's start method of that name",
                remedy="make the NetworkNoise, or call fit, in the process that trains.",
            )

    def key(self) -> Tensor:
        """Four words of 63 bits, shape (1, 4), from which `keyed_generator` makes the draws of one step, and makes them again."""
        self._refuse_fork()
        if isinstance(self._generator, np.random.Generator):
            return torch.from_numpy(self._generator.integers(2**63 - 1, size=(1, 4)))
        return torch.randint(2**63 - 1, (1, 4), generator=self._generator, device=self.device)

    def draw(self, count: int) -> Tensor:
        """So many fresh numbers, at most a piece, to be used before more are asked for."""
        return self._draw(count)

    @property
    def stream(self) -> str:
        """A hash of the state that its generator is in, by which another noise from the same state is known."""
        return state_digest(self._generator)

    @torch.no_grad()
    def add_to(self, tensors: Iterable[Tensor], noise_std: float, *, through: Callable[[Tensor, int], Tensor] | None = None) -> None:
        r"""$x \leftarrow x + \nu$, $\nu \sim N(0, \tau^2 I)$, for every tensor x.

        `through` gives what is added for some of the draws, shape (m,), and the number of the first of them. Nothing is changed where it
        cannot be added.
        """
        noise_std = require_nonnegative("noise_std", noise_std, allow_infinity=False)
        self.add(checked_tensors(tensors, device=self.device), noise_std, through=through)

    def add(self, tensors: Sequence[Tensor], noise_std: float, *, through: Callable[[Tensor, int], Tensor] | None = None) -> None:
        """`add_to` within `torch.no_grad()`."""
        if noise_std == 0.0:
            return
        self._refuse_fork()
        flat = [tensor.reshape(-1) for tensor in tensors]  # a view where it can be
        with self._lock:  # no number goes to two threads
            before = 0
            for parts, sizes in _in_turn(flat, self._piece):
                size = sum(sizes)
                drawn = self._draw(size) if through is None else through(self._draw(size), before)
                before += size
                if parts[0].dtype == torch.float64:
                    torch._foreach_add_(parts, list(drawn.split(sizes)), alpha=noise_std)  # pyright: ignore[reportPrivateImportUsage]
                else:
                    noisy = torch.cat(parts).double().add_(drawn, alpha=noise_std)
                    torch._foreach_copy_(parts, list(noisy.split(sizes)))  # pyright: ignore[reportPrivateImportUsage]
        for tensor, noisy in zip(tensors, flat, strict=True):
            if not tensor.is_contiguous():
                tensor.copy_(noisy.view_as(tensor))

    @torch.no_grad()
    def dense_mean(self, rows: Tensor, noise_std: float, divisor: float, dtype: torch.dtype) -> Tensor:
        r"""$(S + \nu)/b$ of a sum S by its rows, as `row_sum` gives it, with noise in every row; no float64 table is made."""
        self._refuse_fork()
        row_indices, values = rows.indices()[0], rows.values() / divisor
        table, width = rows.shape
        mean = torch.empty(table, width, dtype=dtype, device=values.device)
        size = max(1, self._piece // width)
        ends = torch.searchsorted(row_indices, torch.arange(0, table + size, size, device=row_indices.device)).tolist()
        with self._lock:
            for number, rows_chunk in enumerate(mean.split(size)):
                start, stop = ends[number], ends[number + 1]
                drawn = (
                    self._draw(rows_chunk.numel()).view_as(rows_chunk).mul_(noise_std / divisor)
                    if noise_std
                    else rows_chunk.double().zero_()
                )
                if stop > start:
                    drawn.index_add_(0, row_indices[start:stop] - number * size, values[start:stop])
                rows_chunk.copy_(drawn)
        return mean

    @torch.no_grad()
    def selected_mean(self, sums: Tensor, row_std: float, threshold: float, noise_std: float, divisor: float, dtype: torch.dtype) -> Tensor:
        r"""The rows of $(S + \nu)/b$ to which more is contributed than the threshold, noise of deviation `row_std` included.

        `sums`: of a `Clipper`'s `contributing` table; the mean is coalesced COO, without the last column.
        """
        row_indices, columns = sums.indices()[0], sums.values()
        contributed = torch.zeros(len(sums), dtype=torch.float64, device=columns.device)
        self.add([contributed], row_std)
        contributed[row_indices] += columns[:, -1]
        selected = (contributed > threshold).nonzero()[:, 0]
        values = columns.new_zeros(len(selected), columns.shape[1] - 1)
        selected_rows = contributed[row_indices] > threshold
        values[torch.searchsorted(selected, row_indices[selected_rows])] = columns[selected_rows, :-1]
        self.add([values], noise_std)
        return of_rows(selected, values.div_(divisor).to(dtype), len(sums))


def _in_turn(flat: Iterable[Tensor], largest_piece: int) -> Iterator[tuple[list[Tensor], list[int]]]:
    """The tensors in their order, in pieces of at most so many numbers of one type: parts of one, or several that follow one another; and
    the number of numbers in each."""
    run, sizes, room = list[Tensor](), list[int](), largest_piece
    for tensor in flat:
        for part in tensor.split(largest_piece) if tensor.numel() > largest_piece else (tensor,):
            size = part.numel()
            if run and (part.dtype != run[0].dtype or size > room):
                yield run, sizes
                run, sizes, room = [], [], largest_piece
            if size:
                run.append(part)
                sizes.append(size)
                room -= size
    if run:
        yield run, sizes


class _NumpyNormals:
    r"""Normal numbers by the transform of Box and Muller, from NumPy's uniform numbers and PyTorch's vectorised, threaded functions.

    $\sqrt{-2\ln(1-U)}\,(\cos 2\pi V, \sin 2\pi V)$, where U and V have 53 random bits, so up to $\sqrt{106\ln2} = 8.57$ standard
    deviations. Many are made at once; what one tensor leaves over serves the next, or the next step. All in the caller's thread: PyTorch's
    functions in a second one would have OpenMP's threads sleep between any two operations of the training, as was measured.
    Reference: Box & Muller 1958, "A note on the generation of random normal deviates", Ann. Math. Statist. 29(2).
    """

    def __init__(self, generator: np.random.Generator, largest_piece: int) -> None:
        self.generator = generator
        self._made = torch.empty(2, min(_PAIRS, largest_piece // 2 + 1), dtype=torch.float64)
        self._flat = self._made.view(-1)
        self._sines = torch.empty_like(self._made[0])
        self._used = len(self._flat)

    def draw(self, count: int) -> Tensor:
        """So many fresh numbers, at most a piece, to be used before more are asked for."""
        first, self._used = self._used, self._used + count
        if self._used <= len(self._flat):
            return self._flat[first : self._used]
        unused = self._flat[first:].clone()  # what is made next overwrites it
        self._make()
        self._used = count - len(unused)
        return torch.cat([unused, self._flat[: self._used]])

    def _make(self) -> None:
        self.generator.random(out=self._made.numpy())
        radii, angles = self._made
        torch.sub(1.0, radii, out=radii).log_().mul_(-2.0)  # 1 - U is never 0
        np.sqrt(radii.numpy(), out=radii.numpy())  # rounded correctly, which PyTorch's is not, and in two thirds of the time
        torch.sin(angles.mul_(2.0 * math.pi), out=self._sines)
        angles.cos_().mul_(radii)
        radii.mul_(self._sines)
