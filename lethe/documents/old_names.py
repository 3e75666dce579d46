"""Names that moved: the old one, and what to write now."""

from typing import NoReturn

from lethe.errors import InputError

OLD_NAMES: dict[str, dict[str, str]] = {}


def refuse_old_name(module: str, name: str) -> NoReturn:
    """Answer a name that `module` has no more by an InputError, since `from module import name` hides the message of an AttributeError."""
    if new := OLD_NAMES.get(module, {}).get(name):
        raise InputError(f"{module} has no {name} any more.", remedy=f"write {new}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
