"""Warnings about a training, early or at its end, and the sentences of its record on how records were kept independent. `Trainer` calls
it: a parameter without gradients or a batch that changes rounding is better noticed at the first step.
"""

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import nn

from lethe.errors import BatchShapeWarning, UnusedParameterWarning
from lethe.run.participation import BatchSizes
from lethe.run.run import Run
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.full_precision import tf32_in_convolutions, tf32_in_products
from lethe.train.clip.module_state import digests_of
from lethe.train.core.comparison import coarser
from lethe.train.core.tensors import local
from lethe.train.core.training_records import adapter_states
from lethe.train.data.batches import BatchStream

_UNSAID = "This message, unlike the model, is covered by no certificate."
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FILLED = "Give batches one shape: physical_size fills each up to one number of rows."
_PADDED = "Give batches one shape: pad all records to one length, as by the tokeniser's padding='max_length' or torch.nn.functional.pad."
_NO_REMEDY = "Users have several rows, which nothing fills up: compute in float32, with tf32 off."
_ALWAYS_AS_LARGE = ("zero_out", "replace_one")  # neighbours that have as many records


def warn_of_shapes(clipper: Clipper, run: Run, device: torch.device, stream: BatchStream) -> None:
    """Say that a record's presence, or its length, changes how the others are rounded.

    A GPU multiplies batches of another shape in another order. In float32 one row more moved the sum of the others by some millionths of
    the clip norm C, by tf32 by 5e-4 C, and under autocast to bfloat16 by up to 2e-2 C (an H100, up to 64 records).
    """
    exact = run.batches.sizes is BatchSizes.EXACT and run.neighbours in _ALWAYS_AS_LARGE
    as_many = stream.filled or (stream.single and exact)
    if device.type == "cpu" or (as_many and not stream.pads):
        return
    # A frozen part in half precision is among them.
    dtypes = [parameter.dtype for parameter in clipper.model.parameters() if parameter.is_floating_point()]
    precision = reduce(coarser, dtypes, clipper.precision)
    coarse = torch.finfo(precision).eps > torch.finfo(torch.float32).eps
    convolves = any(isinstance(module, _CONVOLUTIONS) for module in clipper.model.modules())
    if coarse or tf32_in_products() or (convolves and tf32_in_convolutions() is not False):
        why = "a record that is longer makes its whole batch longer" if as_many else "one record more makes a batch larger"
        remedy = _PADDED if as_many else _FILLED if stream.single else _NO_REMEDY
        warnings.warn(
            f"{why}, which on {device.type} in {precision if coarse else 'tf32'} changes how the gradients of all others are "
            f"rounded: by up to 2 % of the clip norm was measured, which no certificate counts. {remedy}",
            BatchShapeWarning,
            stacklevel=4,
        )


def warn_where_nothing_contributes(clipper: Clipper, when: str) -> None:
    """Say that no record of any step so far had a gradient other than 0 that could be measured.

    That is no error: that there is no release would tell everybody. The warning is a message to whoever trains.
    """
    if clipper.contributed is not False:
        return
    why, look = "no gradient was finite and measurable", "Look for NaN and huge numbers in the data."
    if clipper.measured:
        why = "every gradient was 0"
        look = "Look for labels that are all masked (-100), and for a loss that does not reach what is trained."
    warnings.warn(f"private: no record contributed to any {when}, since {why}: the model learns nothing. {look} {_UNSAID}", stacklevel=4)


# The step of a training at which is looked whether anything contributes, while there is time, and up to which whether all parameters move.
EARLY = 10


class FirstSteps:
    """Says, at the first step that shows it, which trained parameters no record's loss is made of, which the optimiser leaves as they were,
    and which peft would not save: all of them get noise that is paid for. A gradient of 0 is none of these, such as that of LoRA's A while
    B is 0. One of several that are numbered, such as an expert, has ten steps for a record to come. `optimizer` None: the steps are the
    plain ones, which leave nothing out; of `selected` tables a step may leave every row.
    """

    def __init__(
        self,
        clipper: Clipper,
        named: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer | None,
        selected: Collection[nn.Parameter] = (),
    ) -> None:
        self._clipper, self._named, self._groups = clipper, named, [] if optimizer is None else optimizer.param_groups
        self._before: dict[str, int] = {}
        self._looks, self._steps = EARLY if optimizer is not None else 0, 0
        self._unmoved = {name: parameter for name, parameter in named.items() if parameter not in selected}

    def before(self) -> None:
        """A step's noise is about to be drawn. What has a learning rate of 0, with which schedules begin, is looked at later."""
        if self._looks:
            resting = {parameter for group in self._groups if not group.get("lr", 1.0) for parameter in group["params"]}
            self._before = digests_of({name: parameter for name, parameter in self._unmoved.items() if parameter not in resting})
            self._looks = self._looks - 1 if resting else 0

    def noised(self, noise_std: float) -> None:
        """Call once a step's noise was drawn."""
        self._steps += self._clipper.measured is not None
        if self._steps in (1, EARLY):
            unused = [name for name, parameter in self._named.items() if parameter.requires_grad and parameter not in self._clipper.reached]
            reached = {_numbered(name) for name, parameter in self._named.items() if parameter in self._clipper.reached}
            unused = [name for name in unused if (_numbered(name) in reached) == (self._steps == EARLY)]
            self._say(unused, "no record's loss depends on it", "freeze it, or use it: by an adapter that is active and not merged")
        if self._steps == 1:
            model = self._clipper.model
            if saved := {local(tensor).data_ptr() for state in adapter_states(model).values() for tensor in state.values()}:
                prompts: Any = model  # of which the file holds what a network makes of them
                lost = [name for name, parameter in self._named.items() if local(parameter).data_ptr() not in saved]
                lost = [] if any(config.is_prompt_learning for config in prompts.peft_config.values()) else lost
                self._say(lost, "save_pretrained() leaves it out", "freeze it, name it in modules_to_save, or save the state_dict()")
        if noise_std == 0:  # then a gradient of 0 moves nothing
            self._before = {}

    def after(self) -> None:
        """The optimiser's step was taken."""
        if self._before:
            now, before, self._before = digests_of(self._unmoved), self._before, {}
            still = [name for name, digest in before.items() if now[name] == digest and self._named[name].requires_grad]
            self._say(still, "the step left it as it was", "look at its learning rate and group, and at hooks that put old values back")

    def _say(self, names: Sequence[str], what: str, remedy: str) -> None:
        if names:
            many = f" (and {len(names) - 1} more of {len(self._named)})" if len(names) > 1 else ""
            message = f"private: {names[0]}{many} gets noise, which is paid for, to no use: {what}. Do: {remedy}. {_UNSAID}"
            warnings.warn(message, UnusedParameterWarning, stacklevel=4)


def _numbered(name: str) -> str:
    return re.sub(r"\b\d+\b", "*", name)


def said_of(clipper: Clipper) -> str:
    """The sentence of the record on how records were kept independent, and whether a PyTorch loss's mean was left out."""
    left_out = getattr(clipper.losses, "mean_left_out", False)
    return _of_isolation(clipper) + ("; the loss is taken of each record, without its mean over the batch" if left_out else "")


def _of_isolation(clipper: Clipper) -> str:
    if clipper.isolation == "enforced" or clipper.ways <= {"vmap", "alone"} != set():
        return "each record passed through model and loss alone, as a batch of one"
    if clipper.isolation == "declared":
        return "nothing: isolation is declared"
    return "checked" if clipper.checked else "no batch had a record with a gradient"
