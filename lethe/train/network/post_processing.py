"""Post-processing of released iterates: their moving average, and their loss on public records, which may end training. `Trainer` updates
both, where the options ask for them; both are functions of what is released, so they cost no privacy.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lethe.calculus.domains import require_count
from lethe.certificates.records import HypothesisClaim
from lethe.errors import HypothesisError, InputError
from lethe.run.run import Run
from lethe.train.core.comparison import first_line
from lethe.train.data.loaders import as_source, records_of
from lethe.train.distributed.workers import Workers
from lethe.train.network.batch_losses import BatchLosses

AVERAGE = "lethe moving average"
"""Of its state in a checkpoint."""


class MovingAverage:
    r"""The average of the iterates so far, with decay $\beta$ in (0, 1); the start has no part in it. An InputError refuses another
    number, a HypothesisError a run that keeps its iterates to itself.
    """

    def __init__(self, decay: Any, named: Mapping[str, nn.Parameter], run: Run) -> None:
        if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0.0 < decay < 1.0:
            raise InputError(f"ema: got {decay!r}; it needs a number between 0 and 1, such as 0.999, or None.")
        if run.release == "last":
            raise HypothesisError(
                f"ema: got {decay:g}, and release is last: an average of iterates tells of iterates that nobody may see.",
                source="ema, run.release",
                remedy="set release: all, whose certificate covers whatever is made of the iterates; or leave ema out.",
            )
        self._decay, self._named, self._steps = float(decay), named, 0
        self._sums = {name: torch.zeros_like(parameter, requires_grad=False) for name, parameter in named.items()}

    @property
    def begun(self) -> bool:
        """Whether there is an iterate in it."""
        return self._steps > 0

    @torch.no_grad()
    def add(self) -> None:
        """Take the parameters as they are now for the next iterate."""
        for name, parameter in self._named.items():
            self._sums[name].lerp_(parameter.detach(), 1.0 - self._decay)
        self._steps += 1

    def of(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's state dict, with the average where trained parameters are; what is not trained is as it is."""
        share = -math.expm1(self._steps * math.log(self._decay))
        averages = {id(parameter): self._sums[name] / share for name, parameter in self._named.items()}
        current_state = model.state_dict(keep_vars=True)
        # What modules keep in a state dict besides may be anything.
        copies = {name: entry.detach().clone() if isinstance(entry, Tensor) else entry for name, entry in current_state.items()}
        return {name: averages.get(id(current_state[name]), entry) for name, entry in copies.items()}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data, for a checkpoint."""
        sums = {name: average.detach().cpu().clone() for name, average in self._sums.items()}
        return {"decay": self._decay, "steps": self._steps, "sums": sums}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; an error of one of another average."""
        if state["decay"] != self._decay:
            raise InputError(f"ema: got {self._decay:g}; the checkpoint's is {state['decay']:g}.", remedy="give what training began with.")
        for name, average in self._sums.items():
            average.copy_(state["sums"][name])
        self._steps = int(state["steps"])


VALIDATION = "lethe validation"
"""Of the state of `Validation` in a checkpoint."""

PUBLIC = HypothesisClaim("validation", "the validation data, which may have ended training, are public")

_AT_ONCE = 256


class Validation:
    """Losses of public records, in the form of the private ones, epoch by epoch. They are functions of released iterates, so that
    nothing is spent on them; where they end training, after `patience` epochs without a smaller one, the whole planned run is
    certified, since where it ends depends on the iterates. All processes go by what process 0 computes. A HypothesisError refuses a
    run that releases the last iterate alone.
    """

    def __init__(
        self, model: nn.Module, loss: Any, data: Any, run: Run, *, patience: int | None, physical_size: int | None, workers: Workers
    ) -> None:
        if run.release == "last":
            raise HypothesisError(
                "validation_data: given, and release is last: a loss after each epoch shows the iterates on the way.",
                source="TrainOptions.validation_data, run.release",
                remedy="set release: all, or evaluate the last model yourself.",
            )
        self._source = records_of(data) if isinstance(data, DataLoader) else as_source(data)
        self._model, self._workers = model, workers
        self._patience = None if patience is None else require_count("patience", patience)
        self._batches = BatchLosses(model, loss, self._source)
        self._size = physical_size or _AT_ONCE
        self.losses: list[float] = []
        try:  # before a record of the private data is read
            self._total(slice(0, min(self._size, len(self._source))))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"validation_data: they do not go through the model and the loss: {first_line(error)}",
                source="TrainOptions.validation_data",
                remedy="give public records in the form of the data that are trained on.",
            ) from error

    @property
    def over(self) -> bool:
        """Whether the last `patience` epochs brought no smaller loss than the best before them."""
        patience = self._patience
        return patience is not None and len(self.losses) > patience and min(self.losses[-patience:]) >= min(self.losses[:-patience])

    @torch.no_grad()
    def measure(self) -> None:
        """Add the mean loss of the model as it is now, in eval mode."""
        training, device = self._model.training, next(self._model.parameters()).device
        self._model.eval()
        try:
            starts = range(0, len(self._source), self._size)
            total = sum(self._total(slice(start, min(start + self._size, len(self._source)))) for start in starts)
        finally:
            self._model.train(training)
        loss = torch.tensor([total / len(self._source)], device=device)
        self._workers.from_root([loss])
        self.losses.append(float(loss) if math.isfinite(loss) else math.inf)

    @torch.no_grad()
    def _total(self, rows: slice) -> float:
        device = next(self._model.parameters()).device
        batch = self._batches.batch(self._source.fetch(rows), device, None)
        return float(self._batches(batch).double().mean()) * (rows.stop - rows.start)

    def state_dict(self) -> dict[str, Any]:
        """The losses so far."""
        return {"losses": list(self.losses)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.losses = list(state["losses"])
