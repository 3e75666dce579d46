"""Gradients of layers' outputs as a backward pass tells them: a layer whose last one has come is handed on at once."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.clipping.records.calls import Call
from lethe.train.clipping.unfollowed import UnfollowedError

Told = list[tuple[Call, list[Tensor | None]]]
"""The calls of a layer, each with the gradients of its outputs."""


class Arrivals:
    """Awaits the gradients of all outputs that the losses come from.

    Nothing is held here once a layer was handed on: what its gradients and inputs take is free for the layers before it.

    Args:
        calls: of each layer; used up.
        nodes: of the graph of the losses.
        hand_on: called within the backward pass, once for each layer that gets a gradient.
    """

    def __init__(self, calls: dict[nn.Module, list[Call]], nodes: Collection[Any], hand_on: Callable[[nn.Module, Told], None]) -> None:
        self._hand_on = hand_on
        # On other devices than a CPU, hooks run in threads of these devices.
        self._context, self._lock = copy_context(), threading.RLock()
        self._told: dict[nn.Module, Told] = {}
        self._awaited: dict[nn.Module, int] = {}
        self._failed: BaseException | None = None
        self._places: defaultdict[Any, list[tuple[int, nn.Module, list[Tensor | None], int]]] = defaultdict(list)
        for module in list(calls):
            told: Told = [(call, [None] * len(call.edges)) for call in calls.pop(module)]
            for call, gradients in told:
                for place, edge in enumerate(call.edges):
                    if edge is not None and edge.node in nodes:
                        self._places[edge.node].append((edge.output_nr, module, gradients, place))
                        self._awaited[module] = self._awaited.get(module, 0) + 1
            if module in self._awaited:
                self._told[module] = told

    @contextmanager
    def awaited(self) -> Generator[None]:
        """Within: the backward pass.

        Raises:
            UnfollowedError: it went past a layer, or by one twice.
        """
        # Of each node by itself: what a hook holds must not lead to the other layers.
        handles = [node.register_prehook(partial(self._arrive, node)) for node in self._places]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        if self._failed is not None:  # within a pass of a function of one's own, which caught it
            raise self._failed
        if self._awaited:
            raise UnfollowedError(
                f"the backward pass told no gradient of {len(self._awaited)} layers that the losses come from.",
                source="the graph that autograd recorded",
                remedy="compute the losses from the model's outputs in one piece, without hooks that end the backward pass.",
            )

    def _arrive(self, node: Any, gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        with self._lock, torch.enable_grad():  # as everywhere else
            try:
                return self._context.copy().run(self._noted, node, gradients)
            except BaseException as error:
                self._failed = error
                raise

    def _noted(self, node: Any, gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        if node not in self._places:
            raise UnfollowedError(
                "the backward pass computed a gradient of a layer's output twice.",
                source="a torch.autograd.Function whose backward runs a backward pass of its own through the model's graph",
                remedy="compute in it with detached tensors only.",
            )
        places = self._places.pop(node)
        if all(isinstance(module, nn.Linear) for _, module, _, _ in places):
            # Autograd would make a copy for its products, and the layer's rule another.
            gradients = tuple(None if gradient is None else gradient.contiguous() for gradient in gradients)
        for number, module, told, place in places:
            told[place] = gradients[number]
            self._awaited[module] -= 1
            if not self._awaited[module]:
                del self._awaited[module]
                self._hand_on(module, self._told.pop(module))
        return gradients
