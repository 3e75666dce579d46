"""Detection of changes to buffers, frozen parameters and attributes during training."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import HypothesisError
from lethe.train.core.tensor_fingerprint import fingerprints, same_numbers
from lethe.train.core.tensors import local
from lethe.train.model_state.changed_attributes import attribute_digests, changed_attributes
from lethe.train.model_state.hidden_numbers import hidden_numbers
from lethe.train.model_state.module_attributes import kept_values, plain_attributes
from lethe.train.model_state.named_parts import NamedParts, Parts

_FEW, _TIMES = 10**6, 4  # so many numbers, or so many times those of the trained parameters, are compared after every step


class UntouchedState:
    """Buffers and frozen parameters of a model, watched: they are released with it, and no noise was added to them.

    A forward pass that keeps a running mean, a count of what it saw or a memory writes what it learned of private records into a buffer.

    Parameters are compared by a fingerprint of their values: a write through `.data` leaves no other trace.

    So do plain attributes of its modules, which are in no state dict, and in every file that `torch.save(model)` writes.

    Args:
        model: as it is before training.
        trained: watch the trained parameters as well, as during one forward pass, which may set none of them by what it saw.
        attributes: watch the attributes as well, as in a whole training (see `kept_values`); what is no longer there tells nothing.
    """

    __slots__ = (
        "_attributes",
        "_buffers",
        "_digests",
        "_hidden",
        "_kept",
        "_light",
        "_looked",
        "_marks",
        "_model",
        "_moved",
        "_parameters",
        "_parts",
        "_seen",
        "_trained",
    )

    def __init__(self, model: nn.Module, *, trained: bool = False, attributes: bool = False) -> None:
        self._model, self._trained, self._parts = model, trained, NamedParts(model)
        parts = self._parts.now()
        self._attributes = kept_values(model) if attributes else None
        self._hidden = hidden_numbers(model) if attributes else {}
        self._digests = attribute_digests(model) if attributes else {}
        self._seen = plain_attributes(parts.modules) if attributes else {}
        self._looked: object = None
        self._moved: set[str] = set()
        # By value: buffers are small, and a self-check that restores them counts as a change of version.
        self._buffers = {name: buffer.detach().clone() for name, buffer in parts.buffers.items()}
        self._parameters = self._fingerprints(parts)
        few = max(_FEW, _TIMES * sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad))
        others = [*model.buffers(), *(parameter for parameter in model.parameters() if not parameter.requires_grad)]
        self._marks: dict[str, tuple[int, int]] = {}
        self._kept: set[str] = set()
        self._light = sum(tensor.numel() for tensor in others) <= few

    def refuse_changes_after(self, steps: int, parts: Parts | None = None) -> None:
        """`refuse_changes` after 1, 2, 4, 8 and so on steps: early enough to save a long training, and rare enough to cost nothing.

        Buffers and frozen parameters after every step, where they are not many more than the trained ones: what is put there for some
        steps and taken away again moves the gradients of all records in between.

        Args:
            steps: how many were taken.
            parts: of the model as they are now, where they are at hand.
        Raises:
            HypothesisError: see `refuse_changes`.
        """
        parts = self._parts.now() if parts is None else parts
        if steps & (steps - 1) == 0:
            self.refuse_changes()
        else:
            if self._light:
                self._refuse_written(parts)
            self._look(parts)
        self._marks = {} if self._light else self._marked(parts)

    def refuse_before_step(self) -> None:
        """Refuse what was written since `refuse_changes_after`: into many by the counts of their versions alone.

        Raises:
            HypothesisError: see `refuse_changes`.
        """
        self._refuse(self._since(self._parts.now()))

    def keep(self) -> None:
        """Take buffers and frozen parameters as a step of the optimiser left them: what its hooks make of noisy iterates, such as an
        average of them, tells no more of the records than these do.

        Of many, a write through `.data` in place, which no count of versions shows, is then refused as any other.
        """
        parts = self._parts.now()
        if moved := self._since(parts):
            self._take(parts, moved)

    def moved(self) -> dict[str, Tensor]:
        """Those that steps of the optimiser moved, by name."""
        return {name: tensor for name, tensor in self._watched(self._parts.now()).items() if name in self._kept}

    @torch.no_grad()
    def restore(self, values: Mapping[str, Tensor]) -> None:
        """Set what steps of the optimiser moved before training was resumed."""
        parts = self._parts.now()
        for name, value in values.items():
            self._watched(parts)[name].copy_(value)
        self._take(parts, values)

    def _take(self, parts: Parts, names: Collection[str]) -> None:
        self._kept.update(names)
        self._buffers |= {name: buffer.detach().clone() for name, buffer in parts.buffers.items() if name in names}
        self._parameters |= self._fingerprints(parts, names)

    def look(self, parts: Parts | None = None) -> None:
        """A quick look at the attributes, by identity: where a tensor or an array is another one, all are compared by value.

        What is put there before a forward pass and taken away after it moves the gradients of that batch, and is gone at the end.
        Numbers by themselves may change, as a learning rate does: they are declared by name.

        Args:
            parts: of the model as they are now, where they are at hand; after a look at their attributes that is quicker.
        Raises:
            HypothesisError: a tensor or an array holds what it did not.
        """
        self._look(self._parts.now() if parts is None else parts)

    def _look(self, parts: Parts) -> None:
        if self._attributes is None:
            return
        same = parts.look is not None and parts.look is self._looked
        if same and all(value._version == version for value, version in self._seen.values() if isinstance(value, Tensor)):
            return
        now = plain_attributes(parts.modules)
        changed = [name for name in {**self._seen, **now} if not _as_before(self._seen.get(name), now.get(name))]
        self._moved.update(name for name in changed if isinstance(now.get(name, (None,))[0], float))
        if len(changed) > len(self._moved.intersection(changed)):
            self._refuse_kept()
        self._seen, self._looked = now, parts.look

    def refuse_changes(self) -> None:
        """Refuse a model whose buffers, frozen parameters or, if they are watched, attributes are not what they were.

        Raises:
            HypothesisError: some are not.
        """
        self._refuse_written(self._parts.now())
        self._refuse_kept()

    def _since(self, parts: Parts) -> list[str]:
        """What was written since `refuse_changes_after`."""
        if self._light:
            return self._written(parts)
        return [name for name, mark in self._marked(parts).items() if self._marks.get(name) != mark]

    def _marked(self, parts: Parts) -> dict[str, tuple[int, int]]:
        """Where each lies, and how often it was written to."""
        return {name: (local(tensor).data_ptr(), tensor._version) for name, tensor in self._watched(parts).items()}

    def _watched(self, parts: Parts) -> dict[str, Tensor]:
        return {**parts.buffers, **{name: own for name, own in parts.parameters.items() if self._trained or not own.requires_grad}}

    def _written(self, parts: Parts) -> list[str]:
        now = parts.buffers
        alike = [name for name, buffer in now.items() if name in self._buffers and buffer.device == self._buffers[name].device]
        told = same_numbers([now[name] for name in alike], [self._buffers[name] for name in alike])
        same = {name for name, agrees in zip(alike, told, strict=True) if agrees}
        changed = [name for name in {**now, **self._buffers} if name not in same]
        parameters = self._fingerprints(parts)
        return changed + [name for name, found in parameters.items() if name not in self._parameters or found != self._parameters[name]]

    def _refuse_written(self, parts: Parts) -> None:
        self._refuse(self._written(parts))

    def _refuse(self, changed: Sequence[str]) -> None:
        if changed:
            beside = "" if self._trained else ", or beside the optimiser's step"
            raise HypothesisError(
                f"{', '.join(changed[:3])}{' and others' if len(changed) > 3 else ''} changed while records passed through the model"
                f"{beside}; nothing of it was clipped or noised, so it may tell of them what no certificate covers.",
                source=f"the model's buffers and {'' if self._trained else 'frozen '}parameters",
                remedy="put the layer that writes them in eval mode, or train without it; where the first batch is to set a parameter, let "
                "public data set it before; what follows from the weights alone, such as an average of them, belongs into a hook of the "
                "optimiser's step (register_step_post_hook), where release is all. The model as it is now must not be released.",
            )

    def _refuse_kept(self) -> None:
        before = self._attributes
        if before is None:
            return
        hidden = [name for name, found in hidden_numbers(self._model).items() if self._hidden.get(name) != found]
        if hidden:
            raise HypothesisError(
                f"{', '.join(hidden[:3])}{' and others' if len(hidden) > 3 else ''} came to lie in a longer tensor, whose other numbers "
                "torch.save writes into the file of the state dict as well; no certificate covers them.",
                source="the storages of the model's parameters and buffers, compared with what they were before",
                remedy="give parameters and buffers memory of their own: tensor.clone(), not a part of a longer one.",
            )
        changed = [name for name, found in kept_values(self._model).items() if name not in before or found != before[name]]
        if changed:
            raise HypothesisError(
                f"{', '.join(changed[:3])}{' and others' if len(changed) > 3 else ''}: a module kept something of what passed through it "
                "in an attribute; it is in no state dict, but in every file that torch.save(model) writes, and no certificate covers it.",
                source="attributes of the model's modules, their containers and hooks, compared by value with what they were before",
                remedy="take out what keeps it, or delete the attribute or remove the hook if it was put there after training only; where "
                "it is a table that follows from shapes, call the model once on zeros of the records' shape before training.",
            )

    @property
    def numbers(self) -> Hashable:
        """A fingerprint of the parameters that are watched, as they were."""
        return tuple(sorted(self._parameters.items()))

    @property
    def declared(self) -> str | None:
        """Which plain attributes changed, to be declared by name; None: none did, or they are not watched."""
        if self._attributes is None:
            return None
        return changed_attributes(self._digests, attribute_digests(self._model), also=self._moved)

    def _fingerprints(self, parts: Parts, names: Collection[str] | None = None) -> dict[str, tuple[Any, ...]]:
        watched = {name: parameter for name, parameter in parts.parameters.items() if self._trained or not parameter.requires_grad}
        watched = watched if names is None else {name: parameter for name, parameter in watched.items() if name in names}
        return dict(zip(watched, fingerprints(watched.values()), strict=True))


def _as_before(before: tuple[Any, int] | None, now: tuple[Any, int] | None) -> bool:
    if before is None or now is None:
        return before is now
    same = before[0] == now[0] if isinstance(before[0], float) and isinstance(now[0], float) else before[0] is now[0]
    return same and before[1] == now[1]
