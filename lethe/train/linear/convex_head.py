"""Trains a linear head on the features of a frozen backbone, with everything that a certificate of a convex loss assumes enforced. `fit`
calls `train_head` for a `Head`. Convexity gives bounds for the last iterate that are far below those of composition.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from lethe.calculus.domains import require_count
from lethe.certificates.records import HypothesisClaim
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.losses.linear import LinearLoss, ManyClassLoss, require_linear_loss
from lethe.run.run import Run
from lethe.train.callbacks.notifier import Notifier
from lethe.train.core.iterates import onto_ball
from lethe.train.core.training_records import released_states
from lethe.train.fitted import Fitted, ModelDescription
from lethe.train.linear.frozen_features import Backbone
from lethe.train.linear.loop import train_linear
from lethe.train.linear.models import Linear
from lethe.train.options import TrainOptions

_AT_ONCE = 256
_DECLARED = (
    HypothesisClaim("public backbone", "the backbone's weights depend on none of these records"),
    HypothesisClaim("records apart", "each record's features depend on that record alone, also in unchecked batches"),
    HypothesisClaim("memory", "the backbone stores nothing of the records"),
    HypothesisClaim("start", "the head's initial weights depend on these records only through another certified training"),
)


class FeatureProjection(nn.Module):
    r"""$u \mapsto u\min(1, R/\|u\|)$ for each row, R > 0, in the arithmetic of training, of the head's type."""

    def __init__(self, feature_norm: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.feature_norm, self.dtype = feature_norm, dtype

    def forward(self, features: Tensor) -> Tensor:
        """Project each row; features and result have shape (B, d), the result the head's type."""
        rows, _ = onto_ball(features.to(torch.float64), self.feature_norm, dtype=self.dtype)
        return rows.to(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Head(ModelDescription[nn.Sequential]):
    r"""A linear head on a frozen backbone $\phi$: $s = W\,\phi(a)\min(1, R/\|\phi(a)\|) + c$ for inputs a, R = run.loss.feature_norm.

    In W and c the loss is convex, and its curvature and gradient bound follow from R; so they are enforced, and the last iterate can be
    certified as such. The features of all records are computed once, in eval mode and without gradients, and projected to norm R. They are
    kept in memory twice, as the backbone gave them and projected, in its type and the head's: of float32 8 bytes a number in all. They must
    fit, the inputs need not. Of a table in blocks neither must: features are computed again in every pass, where their block is read, by a
    copy of the backbone, and a record's input is its row of numbers, float32 where all columns are, else float64.

    What is certified is the head, and its training. The backbone is released with it, so it must be public; and the head's weights before
    training must be independent of the private data. A head that was trained on them already adds its certificate to this one's, privately
    trained or not.

    Args:
        backbone: any module with all parameters frozen, from a record's inputs to one vector of head.in_features numbers. It is put in eval
            mode, and left there. That it keeps records apart is checked on the first batch, and on a shorter last one, of tables in blocks
            on those of every block (`Backbone.checked`); with physical_size 1 each goes through it alone.
        head: float32 or float64. Training begins at its present weights and ends in place: if an error is raised they are as they were. It
            needs one output for each class for losses of many classes, such as softmax regression, and one for the others; and a bias if
            run.loss.intercept is set, none if not.
    """

    backbone: nn.Module
    head: nn.Linear


def train_head(described: Head, data: Any, run: Run, options: TrainOptions, notifier: Notifier) -> Fitted[nn.Sequential]:
    """Train a head on the features of its backbone by `train_linear`."""
    backbone, head = described.backbone, described.head
    loss = require_linear_loss(require_run(run, correlated=True).loss)
    _refuse_head(head, loss)
    _refuse_backbone(backbone, head)
    size = _AT_ONCE if options.physical_size is None else require_count("physical_size", options.physical_size)
    rows = [head.weight.detach().T] if head.bias is None else [head.weight.detach().T, head.bias.detach()[None]]  # pyright: ignore[reportUnnecessaryComparison]
    start = torch.cat(rows)  # features by outputs, the bias as the last row, that of the constant feature 1
    classes = head.out_features if isinstance(loss, ManyClassLoss) else None
    linear = Linear(classes=classes, initial=start, dtype=start.dtype, device=start.device)
    trained = train_linear(linear, data, run, options, notifier, backbone=Backbone(backbone.eval(), head.in_features, size))
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(trained.model.weights.T))
        if head.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
            head.bias.copy_(torch.from_numpy(trained.model.intercept))
    model = nn.Sequential(backbone, FeatureProjection(loss.feature_norm, start.dtype), head).eval()
    released = (*released_states({"model": model.state_dict(), "head": head.state_dict()}), *trained.record.released)
    record = replace(trained.record, declared=(*_DECLARED, *trained.record.declared), released=released)
    return replace(cast("Fitted[Any]", trained), model=model, record=record, checked="checked")


def _refuse_head(head: nn.Linear, loss: LinearLoss) -> None:
    plain = type(head) is nn.Linear and set(dict(head.named_parameters())) <= {"weight", "bias"}
    if not plain or head._forward_hooks or head._forward_pre_hooks or head.weight.is_meta:
        raise InputError(
            f"head: got {type(head).__name__}; it needs a plain torch.nn.Linear, without hooks or parametrisations, and with storage.",
            remedy="put what comes before it into the backbone.",
        )
    several = isinstance(loss, ManyClassLoss)
    if (head.out_features < 2) if several else (head.out_features != 1):
        raise InputError(
            f"head: has {head.out_features} outputs; a {loss.summary} needs {'one for each class, at least 2' if several else '1'}.",
            source="head.out_features, run.loss.kind",
            remedy="take another head, or another kind of loss.",
        )
    biased = head.bias is not None  # pyright: ignore[reportUnnecessaryComparison]
    if biased != loss.intercept:
        raise InputError(
            f"head: has {'a' if biased else 'no'} bias; run.loss.intercept is {loss.intercept}.",
            source="head.bias, run.loss.intercept",
            remedy=f"set intercept to {biased} in the run's loss (it counts in the bounds), or take nn.Linear(..., bias={loss.intercept}).",
        )


def _refuse_backbone(backbone: nn.Module, head: nn.Linear) -> None:
    if not isinstance(backbone, nn.Module):
        raise InputError(f"backbone: got {type(backbone).__name__}; it needs a torch.nn.Module.")
    if trained := [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]:
        raise InputError(
            f"backbone: {trained[0]} ({len(trained)} of its parameters) requires grad; a backbone is not trained.",
            source="backbone",
            remedy="call backbone.requires_grad_(False), or train all of it with lethe.train.fit.",
        )
    tensors, device = (*backbone.parameters(), *backbone.buffers()), head.weight.device
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    if any(tensor.untyped_storage().data_ptr() in storages for tensor in head.parameters()):
        raise InputError(
            "head: shares memory with the backbone, which would be trained with it.", remedy="give the head weights of its own."
        )
    if elsewhere := {str(tensor.device) for tensor in tensors} - {str(device)}:
        raise InputError(
            f"backbone: it is on {', '.join(sorted(elsewhere))}, and the head on {device}; the model that comes back needs one device.",
            remedy=f'call backbone.to("{device}"), or move the head.',
        )
