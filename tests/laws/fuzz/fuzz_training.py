"""Random models trained on neighbouring data sets: no record may move the clipped sum by more than its bound.

python tests/laws/fuzz/fuzz_training.py --models 2000 --first 0

For each model the clipper's sums are compared with record i in the batch, replaced, left out as padding, and gone from the batch; the
ordinary records' with plain autograd, one record at a time, in float64; and one step of `fit` with itself on the neighbouring data set.
"""

import argparse
import copy
import json
import math
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from doors import arguments
from random_models import Case, random_case
from torch import Tensor, nn

from lethe.errors import LetheError
from lethe.run.batches import Full
from lethe.run.run import Run
from lethe.train import fit
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import METHODS, as_groups, group_of

SLACK = 1e-5
"""What rounding may add to the bound, relative to it."""
AWAY = {torch.float32: 1e-3, torch.float64: 1e-5}
"""The same where the batch is of another length: the others' gradients are then rounded in another order."""
AGREE = {torch.float32: 5e-3, torch.float64: 1e-5}
"""How far the sum of ordinary records may lie from that in float64, relative to the sum of their norms."""


@dataclass(slots=True)
class Outcome:
    """What became of one case, what is wrong, each in a line, and the largest change found, in units of the bound."""

    # "trained", "refused: " or "refused, mixing: " and why; or "not refused", of a model that mixes records and was accepted.
    kind: str
    findings: list[str] = field(default_factory=list)
    most: float = 0.0


def examine(case: Case, *, with_fit: bool = True) -> Outcome:
    """Try all that a neighbouring data set may change."""
    outcome = Outcome("trained")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _examine_sums(case, outcome)
            if case.mixing is not None:
                outcome.kind = "not refused"
                return outcome
            if with_fit:
                _examine_fit(case, outcome)
    except LetheError as error:
        outcome.kind = f"refused{', mixing' if case.mixing else ''}: {error.what.splitlines()[0][:100]}"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
        outcome.findings.append(f"raised {type(error).__name__} at {place}: {str(error).splitlines()[:1]}")
    return outcome


def _examine_sums(case: Case, outcome: Outcome) -> None:
    """One clipper sees all data sets, as one training sees many batches: what its self-check accepts must hold for all of them."""
    clipper = Clipper(case.model, lambda batch: case.loss(case.model(batch[0]), batch[1]), case.clip_norm, method=case.method)
    kept = torch.arange(len(case.inputs)) != case.place
    batches: list[tuple[str, tuple[Tensor, Tensor, Tensor | None]]] = [
        ("here", (case.inputs, case.targets, None)),
        ("replaced", (*case.replaced(), None)),
        ("uncounted", (case.inputs, case.targets, kept)),
        ("gone", (case.inputs[kept], case.targets[kept], None)),
        ("ordinary", (case.inputs, case.targets, ~case.odd)),
    ]
    if case.seed % 2:
        batches.reverse()  # the first batch is the one that is looked at most closely
    sums = {name: _sum(clipper, case, *batch) for name, batch in batches}
    bound, dtype = _bound(case), next(case.model.parameters()).dtype
    for name, other, factor, slack in (
        ("replaced", "replaced", 2.0, SLACK),
        ("zeroed out", "uncounted", 1.0, SLACK),
        ("added to the batch", "gone", 1.0, AWAY[dtype]),
    ):
        ratio = float((sums["here"] - sums[other]).norm()) / (factor * bound)
        outcome.most = max(outcome.most, ratio)
        if not ratio <= 1 + slack:
            outcome.findings.append(f"{name}: moves the sum by {ratio:.7g} of the bound {factor * bound:g}")
    outcome.findings += [f"the sum is not finite ({name})" for name, total in sums.items() if not bool(torch.isfinite(total).all())]
    if case.mixing is None:
        _compare_with_plain(case, sums["ordinary"], outcome)


def _bound(case: Case) -> float:
    """The largest norm of one record's contribution to a sum."""
    return math.hypot(*(group.clip_norm for group in as_groups(case.clip_norm)))


def _sum(clipper: Clipper, case: Case, inputs: Tensor, targets: Tensor, counted: Tensor | None) -> Tensor:
    """The clipped sum of all parameters as one vector in float64, in micro-batches of the case's size."""
    for first in range(0, len(inputs), case.physical_size):
        rows = slice(first, first + case.physical_size)
        clipper.add([inputs[rows], targets[rows]], counted=None if counted is None else counted[rows])
    return _flat(clipper.take().values())


def _compare_with_plain(case: Case, told: Tensor, outcome: Outcome) -> None:
    """The sum of the ordinary records alone must be what autograd tells of one record at a time, but for what the model's dtype rounds."""
    exact, own = _expected(copy.deepcopy(case.model).double(), case), _expected(case.model, case)
    if exact is None or own is None:
        return
    expected, sizes = exact
    gap, rounded = float((told - expected).norm()), float((own[0] - expected).norm())
    if not gap <= AGREE[next(case.model.parameters()).dtype] * sizes + 4 * rounded + 1e-30:
        outcome.findings.append(f"ordinary records: the sum is off by {gap:.3g} of {sizes:.3g} from plain autograd in float64")


def _expected(model: nn.Module, case: Case) -> tuple[Tensor, float] | None:
    """The clipped sum of the ordinary records, in float64 or as coarse as the model, and the sum of the norms that were added; None where
    rounding decides it."""
    method, groups = METHODS[case.method], as_groups(case.clip_norm)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    members = [[place for place, name in enumerate(names) if group_of(name, groups) == number] for number in range(len(groups))]
    total, sizes = torch.zeros(sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)).double(), 0.0
    for record in (~case.odd).nonzero()[:, 0].tolist():
        gradients = [gradient.double() for gradient in _plain(model, case, record)]
        parts = list(gradients)
        for group, places in zip(groups, members, strict=True):
            length = torch.stack([torch.zeros(()).double(), *(gradients[place].norm() for place in places)]).norm()
            if not float(length) <= 1e15 or (0 < float(length) < 1e-12 and case.method != "clip"):
                return None  # a direction of numbers that vanish, or that float32 has no room for
            weight = group.clip_norm / (length + method.stability) if float(length) > 0 else 1.0
            weight = min(weight, 1.0) if method.projection else weight
            for place in places:
                parts[place] = gradients[place] * weight
        added = _flat(parts)
        total += added
        sizes += float(added.norm())
    return total, sizes


def _plain(model: nn.Module, case: Case, record: int) -> list[Tensor]:
    """One record's gradients, in the model's arithmetic."""
    inputs = case.inputs[record : record + 1]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    inputs = inputs.to(parameters[0].dtype) if inputs.is_floating_point() else inputs
    loss = case.loss(model(inputs), case.targets[record : record + 1])
    found: Any = torch.autograd.grad(loss.sum(), parameters, allow_unused=True)
    return [torch.zeros_like(parameter) if told is None else told for parameter, told in zip(parameters, found, strict=True)]


def _examine_fit(case: Case, outcome: Outcome) -> None:
    """One step of `fit` with the same noise, on both data sets: the parameters may differ by 2 C / b, and by rounding."""
    records, bound = len(case.inputs), _bound(case)
    run = Run(
        records=records,
        batches=Full(),
        steps=1,
        step_size=1.0,
        clip_norm=bound,
        noise_multiplier=0.5 if case.seed % 2 else 0.0,
        release="all",
        neighbours="replace_one",
    )
    ends: list[Tensor] = []
    for inputs, targets in ((case.inputs, case.targets), case.replaced()):
        model = copy.deepcopy(case.model)
        options = {"clip_groups": None if isinstance(case.clip_norm, float) else case.clip_norm, "method": case.method, "seed": case.seed}
        physical = case.physical_size
        fit(model, case.loss, (inputs.numpy(), targets.numpy()), run, **arguments({"physical_size": physical, **options}))
        ends.append(_flat(parameter.detach() for parameter in model.parameters() if parameter.requires_grad))
    parameter = next(case.model.parameters())
    rounding = 4 * torch.finfo(parameter.dtype).eps * float(ends[0].norm() + ends[1].norm())
    moved, allowed = float((ends[0] - ends[1]).norm()), 2 * bound / records
    if not moved <= allowed * (1 + SLACK) + rounding:
        outcome.findings.append(f"fit: one step moves the parameters by {moved:.6g}, more than {allowed:.6g}")


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])


def outcomes(seeds: range) -> Iterator[tuple[Case, Outcome]]:
    """Each case and what became of it, in the order of the seeds; every third is trained by `fit` as well."""
    for seed in seeds:
        case = random_case(seed)
        yield case, examine(case, with_fit=seed % 3 == 0)


def main() -> int:
    """Run, print findings and counts; 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    most, start = 0.0, time.monotonic()
    for case, outcome in outcomes(range(arguments.first, arguments.first + arguments.models)):
        counts[outcome.kind.split(":")[0]] += 1
        if not case.mixing and math.isfinite(outcome.most):
            most = max(most, outcome.most)
        if outcome.kind.startswith("refused") and not case.mixing:
            print(f"seed {case.seed} {outcome.kind} | {case.description}", flush=True)
        for finding in outcome.findings:
            counts["findings"] += 1
            print(f"FINDING seed {case.seed}: {finding} | {case.description}", flush=True)
    last = arguments.first + arguments.models - 1
    print(json.dumps({"seeds": [arguments.first, last], "seconds": round(time.monotonic() - start), "most": most, **counts}))
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
