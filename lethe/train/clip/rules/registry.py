"""The rule of each type of layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from lethe.errors import InputError
from lethe.train.clip.rules.attention import attention
from lethe.train.clip.rules.convolution import convolution
from lethe.train.clip.rules.embedding import embedding, embedding_bag
from lethe.train.clip.rules.linear import linear
from lethe.train.clip.rules.normalisation import batch_norm, group_norm, instance_norm, over_features
from lethe.train.clip.rules.recurrent import cell, recurrent
from lethe.train.clip.rules.rule import Call, Parts, Rule

RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: Rule(linear),
    nn.Embedding: Rule(embedding),
    nn.EmbeddingBag: Rule(embedding_bag),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), Rule(convolution)),
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm), Rule(over_features)),
    nn.GroupNorm: Rule(group_norm),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), Rule(instance_norm)),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), Rule(batch_norm)),
    nn.MultiheadAttention: Rule(forward=attention, whole=True),
    **dict.fromkeys((nn.RNN, nn.GRU, nn.LSTM), Rule(forward=recurrent)),
    **dict.fromkeys((nn.RNNCell, nn.GRUCell, nn.LSTMCell), Rule(forward=cell)),
}
"""Layer type -> rule."""

NAMED: dict[str, Rule] = {"transformers.pytorch_utils.Conv1D": Rule(partial(linear, transposed=True))}
"""Rules of types in packages that need not be there, by the types' full names."""


def register_rule(kind: type[nn.Module], parts: Callable[[Call], Parts], *, whole: bool = False) -> None:
    """Let the gradients of a type of layer be computed by a rule of one's own; docs/layer_rules.md shows one.

    Args:
        kind: a class of modules; of subclasses too, if they inherit its `forward`.
        parts: (Call) -> (name of a parameter, Rows, OuterProducts or TokenRows) of each trained one.
        whole: whether it answers for the parameters of the modules within as well.
    Raises:
        InputError: it is no class of modules, or no function.
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise InputError(f"register_rule: got {kind!r}; it needs a subclass of torch.nn.Module.")
    if not callable(parts):
        raise InputError(f"register_rule: got {parts!r}; it needs a function of a Call to names and parts.")
    RULES[kind] = Rule(parts, whole=whole)


# A convolution's forward hands its work to a method of another name.
_COMPUTING = ("forward", "_conv_forward")


def rule_of(module: nn.Module) -> Rule | None:
    """The rule of the module's type, or of a base class whose `forward` it inherits unchanged; None: it has none."""
    if any(name in vars(module) for name in _COMPUTING) or module._forward_pre_hooks:
        return None
    kind = type(module)
    for base in kind.__mro__:
        rule = RULES.get(base) or NAMED.get(f"{base.__module__}.{base.__qualname__}")
        if rule is not None:
            return rule if all(getattr(kind, name, None) is getattr(base, name, None) for name in _COMPUTING) else None
    return None
