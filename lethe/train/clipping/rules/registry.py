"""The registry of layer rules."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from lethe.errors import InputError
from lethe.train.clipping.rules.attention.layers import AttentionGradients
from lethe.train.clipping.rules.convolution.layers import ConvGradients, TransposedConvGradients
from lethe.train.clipping.rules.embedding import EmbeddingBagGradients, EmbeddingGradients
from lethe.train.clipping.rules.linear import ConvolutionOfOneGradients, LinearGradients
from lethe.train.clipping.rules.normalisation import GroupNormGradients, InstanceNormGradients, LayerNormGradients, RMSNormGradients
from lethe.train.clipping.rules.recurrent import RecurrentGradients
from lethe.train.clipping.rules.rule import Rule
from lethe.train.model_state.module_attributes import computed_attributes

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: LinearGradients,
    nn.Conv1d: ConvGradients,
    nn.Conv2d: ConvGradients,
    nn.Conv3d: ConvGradients,
    nn.ConvTranspose1d: TransposedConvGradients,
    nn.ConvTranspose2d: TransposedConvGradients,
    nn.ConvTranspose3d: TransposedConvGradients,
    nn.Embedding: EmbeddingGradients,
    nn.EmbeddingBag: EmbeddingBagGradients,
    nn.LayerNorm: LayerNormGradients,
    nn.RMSNorm: RMSNormGradients,
    nn.GroupNorm: GroupNormGradients,
    nn.InstanceNorm1d: InstanceNormGradients,
    nn.InstanceNorm2d: InstanceNormGradients,
    nn.InstanceNorm3d: InstanceNormGradients,
    nn.MultiheadAttention: AttentionGradients,
    nn.RNN: RecurrentGradients,
    nn.GRU: RecurrentGradients,
    nn.LSTM: RecurrentGradients,
}
"""Layer type -> rule. A layer with a rule answers for all parameters inside it; any other module falls back to `fallback.py`."""

_NAMED: dict[str, Rule] = {"transformers.pytorch_utils.Conv1D": ConvolutionOfOneGradients}
"""Rules of types in packages that need not be there, by the types' full names."""

_FRESH = frozenset(("torch.nn.modules.linear.Linear", "transformers.pytorch_utils.Conv1D"))
"""Types whose forward gives a view of what it just computed."""

_LAST = frozenset(name.rpartition(".")[2] for name in _NAMED)

# A convolution's forward hands its work to a method of another name.
COMPUTING = ("forward", "_conv_forward")


def rule_for(module: nn.Module) -> Rule | None:
    """The rule of the module's type, or of a base class whose `forward` it inherits unchanged; None if there is none.

    A subclass that computes something else than its base, a parametrised layer, one whose weight a hook computes, or one whose `forward`
    was replaced on the instance, must not be told by the base's rule.
    """
    if (
        ("parametrizations" in module._modules and is_parametrized(module))
        or any(computed_attributes(module))
        or "forward" in vars(module)
        or "_conv_forward" in vars(module)
    ):
        return None
    for base in type(module).__mro__:
        rule = RULES.get(base)
        if rule is None and base.__name__ in _LAST:
            rule = _NAMED.get(_full_name(base))
        if rule is not None:
            same = all(getattr(type(module), name, None) is getattr(base, name, None) for name in COMPUTING)
            return rule if same else None
    return None


def gives_fresh_views(module: nn.Module) -> bool:
    """Whether nobody else sees the memory of a view that the layer gives."""
    return _full_name(type(module)) in _FRESH


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def register_rule(layer_type: type[nn.Module], rule: Rule) -> None:
    """Add or replace the rule of a layer type; it holds for all clippers whose recordings begin afterwards.

    Raises:
        InputError: not a module class, or a rule that cannot be called.
    """
    if not (isinstance(layer_type, type) and issubclass(layer_type, nn.Module)):
        raise InputError(f"layer_type: got {layer_type!r}; it needs a subclass of torch.nn.Module.")
    if not callable(rule):
        raise InputError(f"rule: got {rule!r}; it needs a subclass of LayerGradients, or a function (module, uses, names) to one.")
    RULES[layer_type] = rule
