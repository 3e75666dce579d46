"""Per-record gradients of the experts of transformers' mixtures: each row passes through those that its router chose, by weights (E, p,
d). The registry names `experts` as the rule of modules made by `use_experts_implementation`. E experts, d inputs, p outputs; $x_{it}$ and
$g_{it}$ are the input and the gradient in the output of position t of record i, $e_t$ its expert.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from lethe.train.clip.float64_sums import products_added
from lethe.train.clip.parts.outer_products import PAIRED, PAIRED_ON_GPU, Memory, OuterProducts
from lethe.train.clip.parts.part import Grouping, ParameterGradients, at_least, norms_of
from lethe.train.clip.rules.rule import Parts, Watch, as_computed, wide


class RoutedProducts(ParameterGradients):
    r"""$G_i[e] = \sum_{t: e_t = e} g_{it}x_{it}^\top$, shape (E, p, d), never formed.

    Inputs x, gradients g and experts e have shapes (B, T, d), (B, T, p) and (B, T).
    """

    held = ("inputs", "gradients", "experts", "_measured")

    def __init__(self, inputs: Tensor, gradients: Tensor, experts: Tensor, count: int) -> None:
        self.inputs, self.gradients, self.experts, self.count = inputs, gradients, experts, count
        self.dtype = gradients.dtype
        self._measured: Tensor | None = None

    def squares(self) -> Tensor:
        """The squared norm of each record's gradient, shape (B,), float64."""
        if self._measured is None:
            tensors, positions = (self.inputs, self.gradients, self.experts), self.inputs.shape[1]
            size = max(1, (PAIRED if self.inputs.is_cpu else PAIRED_ON_GPU) // max(1, positions * positions))
            squares = [_same_expert(x.double(), g.double(), e) for x, g, e in zip(*(tensor.split(size) for tensor in tensors), strict=True)]
            lengths = (norms_of(self.inputs) * norms_of(self.gradients)).sum(1)
            terms = self.inputs.shape[2] + self.gradients.shape[2] + 2 * positions
            self._measured = at_least(torch.cat(squares).clamp(min=0), lengths, terms)
        return self._measured

    def weighted(self, weights: Tensor) -> Tensor:
        """The sum of the records' gradients times `weights`, of the parameter's shape."""
        x, g, e = self.inputs.flatten(0, 1), self.gradients.flatten(0, 1), self.experts.flatten()
        each = weights.repeat_interleave(self.inputs.shape[1])
        total = each.new_zeros(self.count, g.shape[1], x.shape[1])
        for expert in e.unique().tolist():
            rows = (e == expert).nonzero()[:, 0]
            total[expert] = products_added(each.new_ones(1), (g[rows] * each[rows, None])[None], x[rows][None])
        return total

    def rows(self) -> Tensor:
        """The gradient of each record, shape (B, *parameter)."""
        chosen = (self.gradients.masked_fill((self.experts != expert)[..., None], 0) for expert in range(self.count))
        return torch.stack([torch.bmm(expert_gradients.mT, self.inputs) for expert_gradients in chosen], 1)

    def grouped(self, grouping: Grouping) -> ParameterGradients:
        """The gradients of units, each the sum or mean of its rows."""
        inputs, gradients, experts = (grouping(tensor).flatten(1, 2) for tensor in (self.inputs, self.gradients, self.experts))
        return RoutedProducts(inputs, gradients, experts, self.count)


def _same_expert(inputs: Tensor, gradients: Tensor, experts: Tensor) -> Tensor:
    pairs = torch.bmm(inputs, inputs.mT).mul_(torch.bmm(gradients, gradients.mT))
    return pairs.mul_(experts[:, :, None] == experts[:, None]).sum(2).sum(1)


def experts(module: Any, watch: Watch, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """What a module made by `use_experts_implementation` computes, row by row: shapes (N, d), (N, k) and (N, k)."""
    if module.has_post_expert_norm or module._is_expert_parallel:
        raise NotImplementedError("experts in several processes, or normalised one by one")
    each, chosen = top_k_index.shape[1], top_k_index.flatten()
    repeated = hidden_states.repeat_interleave(each, 0)
    hidden = _routed(module, watch, repeated, chosen, "gate_up_proj" if module.has_gate else "up_proj")
    hidden = module._apply_gate(hidden) if module.has_gate else module.act_fn(hidden)
    output = _routed(module, watch, hidden, chosen, "down_proj") * top_k_weights.reshape(-1, 1)
    return output.unflatten(0, (-1, each)).sum(1).to(hidden_states.dtype)


def _routed(module: Any, watch: Watch, tokens: Tensor, chosen: Tensor, name: str) -> Tensor:
    """Each row times the weight of its expert."""
    weight, bias, transposed = getattr(module, name), getattr(module, f"{name}_bias", None), module.is_transposed
    token_rows, outputs = list[Tensor](), list[Tensor]()
    for expert in chosen.unique().tolist():
        token_rows.append((chosen == expert).nonzero()[:, 0])
        expert_weight = weight[expert].mT if transposed else weight[expert]
        outputs.append(functional.linear(tokens[token_rows[-1]], expert_weight, None if bias is None else bias[expert]))
    value = torch.cat(outputs)[torch.cat(token_rows).argsort()]

    def rule(gradient: Tensor, inputs: tuple[Tensor, ...], memory: Memory) -> Parts:
        x, g, e = as_computed(inputs[0], gradient)[:, None], wide(gradient)[:, None], inputs[1][:, None]
        yield name, RoutedProducts(*((g, x) if transposed else (x, g)), e, len(weight))
        if bias is not None:
            yield f"{name}_bias", OuterProducts(g, functional.one_hot(e, len(weight)).to(g), memory)

    return watch(value, (tokens, chosen), rule)
