"""fit: the entry point of training, for modules, linear models and convex heads. Users and `lethe.jobs` call it. It plans the run from the
arguments, starts progress, callbacks and the ledger, and calls `train_network`, `train_linear`, `train_head` or `train_along_directions`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from torch import nn

from lethe.errors import InputError
from lethe.errors.names import answering
from lethe.run.known_fields import require_run
from lethe.run.losses.base import Loss
from lethe.run.run import Run
from lethe.train.callbacks.callback import Callback, TrainingEnd
from lethe.train.callbacks.ledger_callback import paying
from lethe.train.callbacks.notifier import Notifier
from lethe.train.callbacks.progress import ProgressBar
from lethe.train.fitted import Fitted, ModelDescription
from lethe.train.linear.convex_head import Head, train_head
from lethe.train.linear.loop import train_linear
from lethe.train.linear.models import Linear, LinearPredictor
from lethe.train.network.batch_losses import LossFunction
from lethe.train.network.optimizers import optimizer_of
from lethe.train.network.trainer import train_network
from lethe.train.network.zeroth_order import DIRECTIONAL, train_along_directions
from lethe.train.options import TrainOptions, in_options
from lethe.train.planning import Words, planned
from lethe.train.settings import weight_scale

Model = TypeVar("Model", bound=nn.Module | LinearPredictor)


@answering(in_options("fit(model, loss, data, ..."))
def fit(
    model: Model | ModelDescription[Model],
    loss: LossFunction | Loss | None,
    data: Any,
    run: Run | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    clip_norm: float | None = None,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | str | None = None,
    lr: float | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    options: TrainOptions | None = None,
) -> Fitted[Model]:
    r"""Train a model privately, and record the run that was executed.

        fitted = fit(model, nn.CrossEntropyLoss(), data, epsilon=3.0, delta=1e-5)
        print(fitted)

    Without a run an epoch is what `DataLoader(shuffle=True)` means: each record once, in a batch drawn anew and in secret
    (`lethe.batches.RandomAllocation`; batches differ in size, and batch_size is about their mean). The noise is the smallest that meets
    (epsilon, delta) for so many epochs, all iterates released and one record added or removed. A `Run` says anything else: other batches,
    such as `lethe.batches.Poisson`, the last iterate alone, schedules, another relation; then it says all of this. What is left out of
    epochs, batch_size, clip_norm and lr is a function of the number of records, epsilon, delta and the weights at the start, and
    `fitted.settings` says it.

    The model is a PyTorch module, trained in place; a `Linear` model of features; or a `Head` on a frozen backbone. Of the last two the
    pipeline itself enforces what follows from the norm of the features: they are projected to the loss's feature_norm.

    Without an optimiser the steps are those of the certificate,
    $x_t = \mathrm{prox}_{\lambda_t h}(x_{t-1} - \frac{\lambda_t}{b}\sum_i \mathrm{Clip}_C(\nabla f_i) + \nu_t)$, on the concatenation of
    all trained parameters. With one, it is given the noisy mean gradient, and may do with it what it likes: that is post-processing.

    A module is trained as it stands. In train mode dropout draws a mask for each record (from PyTorch's global generator, so a result
    then depends on `physical_size`); in eval mode there is no dropout, and batch normalisation, which train mode refuses, uses its stored
    statistics. What is trained must be float32 or float64, on one device. If an error is raised after the first step, the module holds an
    unfinished iterate, which must not be released.

    In a process group of `torch.distributed`, all processes are to call it alike; batch_size is then of each process, as in PyTorch. Each
    takes its share of every batch; clipped sums are added up in process 0, which adds the noise once and gives the others the result, so
    that all take the same step and record the same run. Of a `DistributedDataParallel` the module inside is trained, and its reducer is not
    used. Of a model in shards (`fully_shard`) the sums of each shard are added up in its own process, which adds its own noise. An error in
    one process ends all. `Linear` and `Head` do not divide their work: trained in W processes they are W models, each with noise of its
    own, and what these release adds up. Train them in one.

    What is certified is this training. The parameters before it must not depend on the private data, but by a training that is
    certified as well: a second training from a privately trained start adds its certificate to the first one's.

    Args:
        model: any module in which a record's loss depends on that record alone (frozen parameters stay); a `Linear`; or a `Head`.
        loss: of a module (outputs, targets) -> one loss a record, shape (B,) or (B, 1), such as `nn.CrossEntropyLoss(reduction="none")`; a
            loss of PyTorch's own with its mean is taken as each record's own, by its twin with reduction="none". Of records that are
            mappings (outputs, batch) -> one loss a record; or None: `outputs.loss`, of each record alone where it is one number.
            Of the others any `lethe.losses.LinearLoss`; or None, which stands for that of the run.
        data: of modules and heads arrays, memory maps, a Parquet source, a map-style Dataset or a DataLoader, whose data set and collate
            function are used, and without a run its batch size; the last tensor of a record is its target, the others are the model's
            arguments. Of modules also mappings from names to arrays, or data sets of mappings, such as a `datasets.Dataset`: the model is
            called as `model(**batch)`, with the fields that its forward names. Of a linear model (features, targets), of shapes (n, d)
            and (n,); targets are class numbers from 0, or real numbers for least squares and Huber. Of linear models and heads also a
            table in blocks, or the pair of it and its targets or their column's name (docs/partitions.md): each step is then a pass over
            the blocks that hold its records, of random batches nearly all.
        run: noise_multiplier must be set (0 is allowed: no privacy), unless a policy chooses the noise; of a module clip_norm as well. What
            it says of a module's loss is declared. With noise_budget set, every step is paid for before it is computed, and the first that
            the budget does not reach ends training. `lethe.plan(run, epsilon, delta)` finds the noise.
        epsilon, delta: the target; delta well below 1/records.
        epochs: passes over the data, at most; None: 20.
        batch_size: about the mean records of a batch, of which an epoch has as many as without privacy; None: that of the DataLoader, or
            about as many as 400 steps need, and more where epsilon is large (`lethe.train.settings`).
        clip_norm: C, the norm that each record's gradient is clipped to; None: 1, 0.1 if lr and optimizer are left out too, or none of a
            `Linear` or `Head`, whose loss bounds it.
        optimizer: of a module: "adamw", "adam", "sgd", or one or several of PyTorch's over its parameters; needs run.release = all, and no
            regulariser or pass_weights in the run. None: "adamw"; with a run the plain steps of its certificate. A new one: what its state
            already holds of private data is not accounted for.
        lr: its learning rate; None: that of the optimiser that was named, and if none was, $20\sqrt{\|x_0\|/(dT)}$ and at most 0.05, of d
            parameters that start at $x_0$, for T steps, falling to 0 unless there is an lr_scheduler. Of a `Linear` or `Head` without a
            run the step size.
        callbacks: are told of the training: public facts of each step, and the training record at its end. See `Callback`, and
            `lethe.integrations.logging` for TensorBoard and MLflow.
        options: everything else, such as `TrainOptions(physical_size=64, checkpoints="folder")`.
    Returns:
        The trained model, the recorded run and its certificate. The run is equal to the planned one if its loss's evidence is "declared"
        (of a module) or "enforced", it says method and clip groups itself, all steps were taken with its own noise, and nothing was seeded.
    Raises:
        BudgetExceededError: the first step alone costs more than run.noise_budget; or the run does not fit what the ledger has left.
        CalibrationError: no noise meets (epsilon, delta).
        InputError: anything that cannot be used, such as an option that the model does not know; nothing is trained then, or, where the
            model itself is at fault, no step is taken.
        LedgerError: the ledger cannot be read or written; nothing is trained then.
        HypothesisError: the run asks for more than such training can be certified for; the model keeps what it saw, in buffers or
            attributes; or something else than the step (the forward pass, the loss, `progress`, a second optimiser) moved the parameters.
        LetheError: the parameters overflowed, or noise was too small to survive rounding.

    Examples:
        >>> import torch
        >>> from lethe.train import fit
        >>> data = torch.randn(200, 3), torch.randint(2, (200,))
        >>> fitted = fit(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), data, epsilon=3.0, delta=1e-4)
        >>> fitted.certificate.epsilon <= 3.0
        True
    """
    options = TrainOptions.of(options)
    words, linear = Words(epsilon, delta, epochs, batch_size, clip_norm), isinstance(model, Linear | Head)
    along = not linear and not {options.method, getattr(run, "clip_method", None)}.isdisjoint(DIRECTIONAL)
    if along and run is None and lr is None:
        raise InputError("lr: none was given; the method directional has no usual one.", remedy="give lr=1e-3, or less.")
    chooses = not linear and not along and run is None and optimizer is None and lr is None
    built_optimizer = (
        None if linear or chooses or along else optimizer_of(model, optimizer, lr, default=None if run is not None else "adamw")
    )
    rate = built_optimizer.param_groups[0]["lr"] if isinstance(built_optimizer, torch.optim.Optimizer) else lr
    fixed = _linear_loss(model, loss, run, optimizer, lr) if linear else None
    large, weights = options.allow_large_delta, weight_scale(model) if chooses else None
    plan = planned(run, words, data, users=options.users, rate=rate, weights=weights, loss=fixed, allow_large_delta=large)
    if chooses:
        built_optimizer = optimizer_of(model, None, plan.settings["lr"], default="adamw")
        options = replace(options, lr_scheduler=options.lr_scheduler or "linear")
    watched = (ProgressBar(plan.delta),) if ProgressBar.wanted(options.progress) else ()
    notifier = Notifier(callbacks, paying(options.ledger, options.checkpoints), watched)
    with notifier.preparing(plan.run):
        match model:
            case Linear():
                options.refuse_for("a Linear")
                fitted: Fitted[Any] = train_linear(model, plan.data, plan.run, options, notifier)
            case Head():
                options.refuse_for("a Head", "physical_size")
                fitted = train_head(model, plan.data, plan.run, options, notifier)
            case _ if along:
                fitted = train_along_directions(cast(Any, model), cast(Any, loss), plan, options, notifier, optimizer)
            case _:  # what is no module is refused there
                fitted = train_network(cast(Any, model), cast(Any, loss), plan, options, built_optimizer, notifier)
    fitted = replace(fitted, delta=plan.delta, settings=plan.settings)
    notifier.end(
        TrainingEnd(
            run=fitted.run, steps=fitted.diagnostics.steps, record=fitted.record, spent=fitted.spent, diagnostics=fitted.diagnostics
        )
    )
    return fitted


def _linear_loss(model: object, loss: object, run: Run | None, optimizer: object, lr: object) -> Loss:
    """The loss of a linear model or a head, which the run says, or else the caller."""
    kind = f"a {type(model).__name__}"
    if optimizer is not None or (lr is not None and run is not None):
        name = "lr" if optimizer is None else "optimizer"
        raise InputError(
            f"{name}: {kind} takes the steps of its run.",
            source=name,
            remedy=f"leave {name} out: run.step_size is the learning rate; or train the model as a torch.nn.Module.",
        )
    if run is None:
        if isinstance(loss, Loss) and lr is not None:
            return loss
        name, got = ("loss", loss) if not isinstance(loss, Loss) else ("lr", lr)
        raise InputError(
            f"{name}: got {got!r}, and no run; {kind} needs a loss of lethe.losses and a step size.",
            source=name,
            remedy="fit(Linear(classes=10), lethe.losses.Softmax(feature_norm=1.0, evidence='enforced'), (X, y), ..., lr=2.0).",
        )
    if loss is not None and not (isinstance(loss, Loss) and loss == require_run(run, correlated=True).loss):
        raise InputError(
            f"loss: got {loss!r}; the run says {run.loss!r}, and that is what a linear model is trained by.",
            source="loss, run.loss",
            remedy="give None, or state the loss in the run.",
        )
    return require_run(run, correlated=True).loss
