r"""Correlated noise for the sums of a network's gradients: later noise cancels part of the earlier, so less is left in the end.

Known as the matrix mechanism or DP-FTRL. `TrainingNoise` and the linear loop ask it once a step. C is the strategy, a lower triangular
matrix of T steps, chosen before training; banded ones have p coefficients. $S_j$ is the sensitivity (norm of the columns that a record
uses) of slot j, the position in a pass at which a record comes; $\tau$ the standard deviation, $g_t$ the sum of step t.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lethe.calculus.correlated.sensitivity import column_norms, slot_sensitivities
from lethe.errors import InputError, LetheError
from lethe.run.noise.draws import Draws
from lethe.run.noise.strategies import BandedInverse, growths
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.train.core.generators import OF_STEPS, keyed_generator, stream_generator
from lethe.train.core.tensors import checked_tensors
from lethe.train.network.noise.gaussian import ROUNDINGS, NetworkNoise
from lethe.train.network.noise.secure import SecureNoise, grid_noise_std, least_move


class CorrelatedNetworkNoise:
    r"""Adds $\tau u_t$ to the sums of step t, $u = C^{-1}z$ with $z_t \sim N(0, I)$; asked once a step, for all tensors together.

    It keeps what the strategy's stream keeps, in float64: p - 1 numbers a parameter of a banded strategy, one a buffer of a buffered one.
    Of an inverse of two coefficients it keeps a key, four words, from which the last step's draw is made again.

    **Of secure noise**, $z_t$ is added to $a_t = \sum_{s\le t}C_{ts}g_s$, of the sums $g_s$ so far: $y_t = R(a_t) + R(z_t)$. Of
    $y_1, \ldots, y_t$ alone, by forward substitution, comes $\hat g_t = (C^{-1}y)_t$, which is $g_t + (C^{-1}z)_t$ up to that rounding. So
    twice as much is kept, and the sums of gradients among it. All $\hat g_t$ are a function of the $y_t$, and these of Gaussian
    mechanisms on $R(a_t)$ (`secure.py`). A record that moves the $a_t$ by $\sqrt{\sum_t\|d_t\|^2} \le S_j$ moves the $R(a_t)$ by at most
    $S_j + \gamma\sqrt{dT}$ (Minkowski: T steps of d numbers). With the standard deviation of `grid_noise_std` for the smallest $S_j$ and dT
    numbers it is as private as the exact mechanism, in every slot. Where a record is drawn at steps of its group, the least that one
    draw moves, the shortest column of C, stands for $S_j$, without the factor 2 of a replaced record (`least_move`; docs/theory.md).
    $a_t$ is computed in float64, as the sums are in the parameters' type; what else is covered `secure.py` says.

    **Resuming.** What is kept is in the checkpoint; no generator is. Steps that were released after the checkpoint, or may have been,
    are forgotten: their noise is not taken back from later steps, which would add it to a model that it is not in. What was executed is
    then a strategy with fewer entries, which protects no less, if none is negative. `dtype` is the coarsest of the parameters; `dimension`
    numbers are trained, over all processes; under a seed each step draws from a generator of its own (`stream_generator`).

    Raises:
        LetheError: the noise would outgrow its draws.
    """

    def __init__(
        self, run: Run, noise: NetworkNoise | SecureNoise, dtype: torch.dtype, *, dimension: int = 1, seed: int | None = None, part: int = 0
    ) -> None:
        assert run.noise is not None
        fresh = _fresh_share(run, dtype)
        self._run, self._noise, self._dimension, self._seed, self._part = run, noise, dimension, seed, part
        self._device = noise.device if isinstance(noise, NetworkNoise) else None
        secure = isinstance(noise, SecureNoise)
        self._pair = run.noise.coefficients if isinstance(run.noise, BandedInverse) and len(run.noise.coefficients) == 2 else None
        self._draws = (*([Draws(run.noise, product=True)] if secure else []), Draws(run.noise))
        self.fresh_share = float("inf") if secure else fresh  # no rounding can hide noise that is on a grid

    @torch.no_grad()
    def add_to(self, tensors: Iterable[Tensor], noise_std: float) -> None:
        """Add the noise of the next step. `noise_std` is of what is drawn anew."""
        checked = checked_tensors(tensors, device=self._device)
        if noise_std == 0.0:
            self.elsewhere(0.0)
        elif isinstance(self._noise, SecureNoise):
            self._add_on_grid(self._noise, checked, noise_std)
        elif self._pair is not None:
            self._add_pair(self._noise, checked, noise_std, *self._pair)
        else:
            self._add_in_pieces(self._noise, checked, noise_std)

    def _add_pair(self, noise: NetworkNoise, checked: tuple[Tensor, ...], noise_std: float, now: float, then: float) -> None:
        """A strategy of two coefficients: `now` times a fresh draw plus `then` times the last step's, made again from its key."""
        (draws,), size = self._draws, sum(tensor.numel() for tensor in checked)

        def of(key: Tensor) -> NetworkNoise:
            words = [int(word) for word in key.tolist()]
            if self._seed is None:
                return NetworkNoise(keyed_generator(words, noise.device), size)
            return NetworkNoise(stream_generator(self._seed, noise.device, OF_STEPS, self._part, words[0] - 1), size)

        # Under a seed the step, from 1: 0 is a key that was lost.
        key = noise.key() if self._seed is None else torch.tensor([[draws.steps + 1]])
        last = None if draws.key is None else of(draws.key)

        def through(drawn: Tensor, _: int) -> Tensor:
            drawn.mul_(now)
            return drawn if last is None else drawn.add_(last.draw(len(drawn)), alpha=then)

        of(key[0]).add_to(checked, noise_std, through=through)
        draws.over(key)

    def _add_in_pieces(self, noise: NetworkNoise, checked: tuple[Tensor, ...], noise_std: float) -> None:
        """Noise that needs the draws of several earlier steps, which are kept."""
        (draws,), size = self._draws, sum(tensor.numel() for tensor in checked)
        if noise.device.type == "cpu":  # from NumPy, which asks for large pages, as PyTorch does not: a fifth faster to read
            draws.reserve(lambda rows: torch.from_numpy(np.zeros((rows, size))))
        if self._seed is not None:
            noise = NetworkNoise(stream_generator(self._seed, noise.device, OF_STEPS, self._part, draws.steps))
        noise.add_to(checked, noise_std, through=lambda drawn, first: draws.part(drawn, first, size))
        draws.over()

    def _add_on_grid(self, noise: SecureNoise, checked: tuple[Tensor, ...], noise_std: float) -> None:
        """Secure noise: rounded and noised are the $a_t$ of the class's docstring, here `weighted_sums`."""
        sums, noisy = self._draws
        run, strategy = self._run, self._run.noise.strategy(self._run.total_steps)  # pyright: ignore[reportOptionalMemberAccess]
        by_draw = run.batches.participation is Participation.DRAW_IN_PUBLIC_GROUP
        sensitivity = (column_norms(strategy) if by_draw else slot_sensitivities(strategy, run.steps_per_pass)).min()
        wider = grid_noise_std(noise_std, least_move(run) * float(sensitivity), self._dimension * run.total_steps)
        # On the CPU, where the noise is drawn and where a checkpoint puts the memory. A process may hold no number, and takes the step too.
        none = torch.empty(0, dtype=torch.float64)
        weighted_sums = sums.next(torch.cat([none, *(tensor.detach().to(none).reshape(-1) for tensor in checked)]))
        noise.add_to([weighted_sums], wider)
        parts = noisy.next(weighted_sums).split([tensor.numel() for tensor in checked])
        for tensor, part in zip(checked, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def elsewhere(self, noise_std: float) -> None:
        """Another process adds the noise of the next step."""
        for draws in self._draws:
            if noise_std == 0.0:
                draws.none()
            else:
                draws.elsewhere()

    def executed(self, recorded: Run, *, steps: int | None = None) -> Run:
        """`recorded`, of independent noise, with the strategy that made the noise; as `Draws.executed`."""
        return self._draws[-1].executed(recorded, steps=steps)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, as private as the data: whoever has seen the iterates learns the last gradients from it."""
        states = [draws.state_dict() for draws in self._draws]
        memory = [state["memory"].detach().cpu().clone() for state in states if state["memory"] is not None]
        return {**states[-1], "memory": memory}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, of a process that is gone; without its memory in a process that draws nothing."""
        memories = [memory.to(self._device or "cpu") for memory in state["memory"]] or [None] * len(self._draws)
        if len(memories) != len(self._draws):
            raise InputError("state: this is not what this noise noted.", source="checkpoints.folder")
        for draws, memory in zip(self._draws, memories, strict=True):
            draws.load_state_dict({**state, "memory": memory})

    def forget(self, steps: int) -> None:
        """So many steps were released, or may have been, after the checkpoint; an error of a strategy with negative entries, which may be
        more sensitive with some of them dropped."""
        assert self._run.noise is not None
        if steps and self._run.noise.strategy(self._run.total_steps).min() < 0.0:
            raise InputError(
                f"noise: {steps} steps were released, and their noise is lost; a strategy with negative entries cannot go on without it.",
                source="run.noise, and a training that was killed between two checkpoints",
                remedy="count these steps, and begin another run, of a strategy without negative entries.",
            )
        for draws in self._draws:
            draws.forget(steps)


def _fresh_share(run: Run, dtype: torch.dtype) -> float:
    r"""How much of a step's own draw is in its correlated noise, at the least: $1/\max_t C_{tt}$."""
    assert run.noise is not None
    strategy, growth = run.noise.strategy(run.total_steps), float(growths(run.noise, run.total_steps).max())
    # C w = z + e, with e at most the rounding of the products in a row.
    lost = (run.noise.stream().memory_rows + 2) * float(np.abs(strategy).max()) * growth * torch.finfo(dtype).eps
    if not lost * ROUNDINGS < 1.0:
        raise LetheError(
            f"the noise of a step becomes {growth:.3g} times what is drawn for it, which drowns in the rounding of {dtype}.",
            source=f"noise.kind = {run.noise.kind}",
            remedy="take coefficients that fall off, as lethe.correlate finds them, fewer steps, or float64.",
        )
    return 1.0 / float(strategy[0] if strategy.ndim == 1 else np.diagonal(strategy).max())
