"""fit: the entry point of training, for modules, linear models and convex heads; and two shorthands for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from lethe.documents.synonyms import in_other_words
from lethe.errors import InputError
from lethe.run.known_fields import require_run
from lethe.run.losses.base import Loss
from lethe.run.run import Run
from lethe.train.callbacks.callback import TrainingCallback, TrainingEnd
from lethe.train.callbacks.paying import Spender, paying
from lethe.train.callbacks.telling import Telling
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.clip.groups import Group
from lethe.train.core.budgeted_noise import NoisePolicy
from lethe.train.core.progress import Callback
from lethe.train.core.proximal import ProximalGroup
from lethe.train.fitted import Fitted, ModelDescription
from lethe.train.linear.convex_head import Head, train_head
from lethe.train.linear.loop import train_linear
from lethe.train.linear.models import Linear, LinearPredictor
from lethe.train.network.batch_losses import LossFunction
from lethe.train.network.trainer import train_network
from lethe.train.options import TrainOptions

Model = TypeVar("Model", bound=nn.Module | LinearPredictor)


@in_other_words
def fit(
    model: Model | ModelDescription[Model],
    loss: LossFunction | Loss | None,
    data: Any,
    run: Run,
    *,
    noise_policy: NoisePolicy | None = None,
    seed: int | None = None,
    batch_generator: torch.Generator | None = None,
    noise_generator: np.random.Generator | torch.Generator | None = None,
    progress: bool | Callback = False,
    callbacks: TrainingCallback | Iterable[TrainingCallback] = (),
    physical_size: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    clip_groups: Sequence[Group] | str | None = None,
    proximal_groups: Sequence[ProximalGroup] | None = None,
    method: str | None = None,
    users: Any = None,
    records_per_user: int | None = None,
    views: int = 1,
    ema: float | None = None,
    gradient_memory: int | None = None,
    secure: bool = False,
    isolation: str = "checked",
    checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
    ledger: Spender | None = None,
) -> Fitted[Model]:
    r"""Train a model as `run` says, and record the run that was executed.

    The model is a PyTorch module, trained in place; a `Linear` model of features; or a `Head` on a frozen backbone. Of the last two the
    pipeline itself enforces what follows from the norm of the features: they are projected to run.loss.feature_norm.

    Without an optimiser the steps are those of the certificate,
    $x_t = \mathrm{prox}_{\lambda_t h}(x_{t-1} - \frac{\lambda_t}{b}\sum_i \mathrm{Clip}_C(\nabla f_i) + \nu_t)$, on the concatenation of
    all trained parameters. With one, it is given the noisy mean gradient, and may do with it what it likes: that is post-processing.

    A module is trained as it stands. In train mode dropout draws a mask for each record (from PyTorch's global generator, so a result
    then depends on `physical_size`); in eval mode there is no dropout, and batch normalisation, which train mode refuses, uses its stored
    statistics. What is trained must be float32 or float64, on one device. If an error is raised after the first step, the module holds an
    unfinished iterate, which must not be released.

    In a process group of `torch.distributed`, all processes are to call it alike. Each takes its share of every batch; clipped sums are
    added up in process 0, which adds the noise once and gives the others the result, so that all take the same step and record the same
    run. Of a `DistributedDataParallel` the module inside is trained, and its reducer is not used. Of a model in shards (`fully_shard`) the
    sums of each shard are added up in its own process, which adds its own noise. An error in one process ends all. `Linear` and `Head`
    do not divide their work: trained in W processes they are W models, each with noise of its own, and what these release adds up. Train
    them in one.

    What is certified is this training. The parameters before it must not depend on the private data, but by a training that is
    certified as well: a second training from a privately trained start adds its certificate to the first one's.

    Args:
        model: any module whose records do not meet, of which what does not require grad stays as it is; a `Linear`; or a `Head`.
        loss: of a module (outputs, targets) -> one loss a record, shape (B,) or (B, 1), such as `nn.CrossEntropyLoss(reduction="none")`; a
            loss of PyTorch's own with its mean is taken as each record's own, by its twin with reduction="none". Of records that are
            mappings (outputs, batch) -> one loss a record; or None: `outputs.loss`, of each record alone where it is one number.
            Of the others run.loss, any `lethe.losses.LinearLoss`; or None, which stands for it.
        data: of modules and heads arrays, memory maps, a Parquet source, a map-style Dataset or a DataLoader, whose data set and collate
            function are used (`lethe.train.data.as_source`); the last tensor of a record is its target, the others are the model's
            arguments. Of modules also mappings from names to arrays, or data sets of mappings, such as a `datasets.Dataset`: the model is
            called as `model(**batch)`, with the fields that its forward names. Of a linear model (features, targets), of shapes (n, d)
            and (n,) with n = run.records; targets are class numbers from 0, or real numbers for least squares and Huber. Of linear models
            and heads also a table in blocks, or the pair of it and its targets or their column's name (docs/partitions.md): batches are
            then full, cyclic, shuffled_once or poisson, and each step is a pass over the blocks that hold its records.
        run: noise_multiplier must be set (0 is allowed: no privacy), unless a policy chooses the noise; of a module clip_norm as well. What
            it says of a module's loss is declared. With noise_budget set, every step is paid for before it is computed, and the first that
            the budget does not reach ends training.
        noise_policy: chooses each step's noise multiplier from what was released so far (see `Observed`), by public data besides; it must
            see nothing else of the private data. Needs run.noise_budget. None: the run's own noise.
        seed: makes batches and noise repeatable, for tests: whoever knows the seed knows the noise, and two fits under one seed share it.
            The recorded run is then `seeded`, and its certificate: no release. None: fresh entropy.
        batch_generator, noise_generator: instead of a seed, and as seeded: nobody can tell who could make their numbers again. The batches'
            is on the CPU, the noise's on the model's device, or NumPy's where that is the CPU. One for the batches alone is no harm where
            the design keeps nothing secret.
        progress: True: a bar on standard error if that is a terminal; or a function of (step, steps), which must leave the parameters as
            they are.
        callbacks: are told of the training: public facts of each step, and the training record at its end. See `TrainingCallback`, and
            `lethe.integrations.logging` for TensorBoard and MLflow.
        physical_size: of modules and heads, how many records are on the device at once; None: a whole batch, and 256 through a backbone.
            The result does not depend on it but for rounding.
        optimizer: this and all that follow are of modules alone. Over the model's parameters; needs run.release = all, and no regulariser
            or pass_weights in the run. Its learning rate may be scheduled between steps by `progress`. A new one: what its state already
            holds of private data is not accounted for.
        clip_groups: parameter groups with norms of their own, whose squares sum to at most clip_norm^2: those of run.clip_groups, if it
            says any; "per_layer": each of the L layers by itself, to clip_norm over the root of L; None: one norm for all.
        proximal_groups: disjoint groups of parameters with regularisers of their own; needs run.release = all and no run.regulariser.
            $x_t = \arg\min_u \sum_g h_g(u_g) + \frac{1}{2\lambda_t}\|u - y_t\|^2$ with $y_t$ what the noisy step, or the optimiser,
            made: in the Euclidean metric, with the run's $\lambda_t$, whatever the optimiser's metric and learning rate are.
        method: None: run.clip_method. "clip" is a projection; "normalise" and "automatic" are none, and need release = all.
        users: of a run of unit "user": the id of each record's user, whole numbers or texts, in the order of the records; or the name of
            their column in a Parquet source, a data set with columns, or mappings: it is not given to the model. A user's gradient is
            that of the mean loss of its records, clipped once; run.records and all batches, `physical_size` too, count users.
        records_per_user: the most records of a user that take part in a step, chosen at random anew each time; None: all.
        views: how often each record is read in a step, K: with a data set that augments at random, a record's gradient is that of the mean
            loss of K views (De et al. 2022, arXiv:2204.13650), clipped once. The certificate does not change.
        ema: $\beta$ in (0, 1), such as 0.999: `fitted.averaged` is then the average
            $\frac{1-\beta}{1-\beta^T}\sum_t \beta^{T-t} x_t$ of the iterates, beside the last one; the certificate covers both. Needs
            run.release = all.
        gradient_memory: how many bytes the gradients of single records may take at a time, beside what the backward pass has let go of by
            then; 0: none is kept, each is formed twice, which is slower. None: 8 MiB, on a GPU 64.
        secure: noise from the operating system's cryptographic source, exact on a grid, some six times slower (see `SecureNoise`); needs
            release = all. It is enlarged by what the grid costs, so that the run's certificate holds as it is.
        isolation: how it is known that records do not meet in model and loss. "checked": records of some batches are compared with the same
            records alone; a model that differs is trained on each record alone, or refused. "enforced": each record always passes
            through model and loss alone, which is slower, and the certificate says enforced. "declared": nothing is compared.
        checkpoints: a folder, or more than that, to save the training to. If there is one in it already, training goes on from there,
            with fresh noise: call `fit` again as before. The folder is as private as the data.
        ledger: what pays for the training: `lethe.ledger.Spending(ledger, "patients")`. What the run costs is reserved before a
            record is read, and settled with the recorded run.
    Returns:
        The trained model, the recorded run and what was checked. The run is equal to `run` if its loss's evidence is "declared" (of a
        module) or "enforced", it says method and clip groups itself, all steps were taken with its own noise, and nothing was seeded.
    Raises:
        BudgetExceededError: the first step alone costs more than run.noise_budget; or the run does not fit what the ledger has left.
        InputError: anything that cannot be used, such as an option that the model does not know; nothing is trained then, or, where the
            model itself is at fault, no step is taken.
        LedgerError: the ledger cannot be read or written; nothing is trained then.
        HypothesisError: the run asks for more than such training can be certified for; the model keeps what it saw, in buffers or
            attributes; or something else than the step (the forward pass, the loss, `progress`, a second optimiser) moved the parameters.
        LetheError: the parameters overflowed, or noise was too small to survive rounding.
    """
    told = Telling(callbacks, paying(ledger, checkpoints))
    options = TrainOptions(
        noise_policy=noise_policy,
        seed=seed,
        batch_generator=batch_generator,
        noise_generator=noise_generator,
        progress=progress,
        callbacks=told,
        physical_size=physical_size,
        optimizer=optimizer,
        clip_groups=clip_groups,
        proximal_groups=proximal_groups,
        method=method,
        users=users,
        records_per_user=records_per_user,
        views=views,
        ema=ema,
        gradient_memory=gradient_memory,
        secure=secure,
        isolation=isolation,
        checkpoints=checkpoints,
    )
    with told.preparing(run):
        match model:
            case Linear():
                options.refuse_for("a Linear")
                _refuse_other_loss(loss, run)
                fitted: Fitted[Any] = train_linear(model, data, run, options)
            case Head():
                options.refuse_for("a Head", "physical_size")
                _refuse_other_loss(loss, run)
                fitted = train_head(model, data, run, options)
            case _:  # what is no module is refused there
                fitted = train_network(cast(Any, model), cast(Any, loss), data, run, options)
    told.end(
        TrainingEnd(
            run=fitted.run,
            steps=fitted.report.steps,
            record=fitted.record,
            spent=fitted.spent,
            report=fitted.report,
        )
    )
    return fitted


@in_other_words
def fit_linear(
    run: Run,
    features: Any,
    targets: Any = None,
    *,
    classes: int | None = None,
    initial: Any = None,
    dtype: str | torch.dtype = "float64",
    device: str | torch.device = "cpu",
    **options: Any,
) -> Fitted[LinearPredictor]:
    """`fit` of a linear model.

    Args:
        run: with the loss of the model.
        features: shape (n, d) with n = run.records; or a table in blocks.
        targets: shape (n,); of a table in blocks the name of their column, or None where it has them.
        classes, initial, dtype, device: see `Linear`.
        options: see `fit`.
    """
    model = Linear(classes=classes, initial=initial, dtype=dtype, device=device)
    return fit(model, None, (features, targets), run, **options)


@in_other_words
def fit_head(backbone: nn.Module, head: nn.Linear, data: Any, run: Run, **options: Any) -> Fitted[nn.Sequential]:
    """`fit` of a linear head on a frozen backbone.

    Args:
        backbone, head: see `Head`.
        data, run, options: see `fit`.
    """
    return fit(Head(backbone, head), None, data, run, **options)


def _refuse_other_loss(loss: object, run: Run) -> None:
    if loss is not None and not (isinstance(loss, Loss) and loss == require_run(run, correlated=True).loss):
        raise InputError(
            f"loss: got {loss!r}; the run says {run.loss!r}, and that is what a linear model is trained by.",
            source="loss, run.loss",
            remedy="give None, or state the loss in the run.",
        )
