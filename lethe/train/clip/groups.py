"""Which parameters are clipped together, to which norm, and by which factor. `Group` is the user's option clip_groups; `clipper_of` makes
of a number or groups one list, which `Clipper` and `ClippedSums` read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lethe.errors import InputError, require_finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parameters whose gradients are clipped together.

    Args:
        parameters: patterns of their names, as model.named_parameters() gives them; `*` stands for anything ("encoder.*", "*bias").
        clip_norm: C_k > 0, the largest norm of a record's gradient in these parameters.
    """

    parameters: tuple[str, ...]
    clip_norm: float

    def __post_init__(self) -> None:
        if (
            not isinstance(self.parameters, tuple)
            or not all(isinstance(pattern, str) for pattern in self.parameters)
            or not self.parameters
        ):
            raise InputError(f"Group.parameters: got {self.parameters!r}; it needs a tuple of names or patterns, such as ('encoder.*',).")
        object.__setattr__(self, "clip_norm", checked_norm("Group.clip_norm", self.clip_norm))

    def holds(self, name: str) -> bool:
        """Whether the parameter of this name belongs to the group."""
        return any(fnmatchcase(name, pattern) for pattern in self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    r"""How a gradient $v$ of norm $n$ is brought to norm at most $C$: $v \mapsto w v$ with $w = C/(n + \gamma)$.

    Args:
        projection: whether w is at most 1: the projection on the ball, which is 1-Lipschitz. Theorems that need it refuse the others.
        stability: $\gamma \ge 0$.
        enlarges: whether w is unbounded as n goes to 0, so that what is nothing but rounding would be brought to norm C as well.
    """

    projection: bool
    stability: float = 0.0
    enlarges: bool = False


METHODS: Mapping[str, Method] = {
    "clip": Method(projection=True),
    "normalise": Method(projection=False, enlarges=True),
    "automatic": Method(projection=False, stability=0.01),
}
r"""`clip` $v\min(1, C/\|v\|)$; `normalise` $vC/\|v\|$ (0 stays 0, and a group of rounding alone stays small);
`automatic` $vC/(\|v\|+0.01)$ (Bu et al. 2022, arXiv:2206.07136)."""


def checked_norm(name: str, value: object) -> float:
    """A clipping norm: finite and positive, or InputError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name}: got {value!r}; it needs a finite number > 0.")
    return require_finite(name, value, low=0.0, strict=True)


def as_groups(clip_norm: float | Sequence[Group]) -> tuple[Group, ...]:
    """One group of all parameters for a number; groups as they are; an InputError for anything else."""
    if isinstance(clip_norm, tuple | list):
        if not clip_norm or not all(isinstance(group, Group) for group in clip_norm):
            raise InputError(f"clip_norm: got {clip_norm!r}; it needs a number > 0, or one Group or more.")
        return tuple(clip_norm)
    return (Group(parameters=("*",), clip_norm=checked_norm("clip_norm", clip_norm)),)


def group_of(name: str, groups: Sequence[Group]) -> int:
    """The place of the first group that holds the parameter; an InputError where none does."""
    for index, group in enumerate(groups):
        if group.holds(name):
            return index
    raise InputError(
        f"parameter {name} is trained and belongs to no group.",
        source="clip_norm",
        remedy=f"name it in a group, or end with Group(parameters=('*',), clip_norm=...), or freeze it: {name}.requires_grad_(False).",
    )
