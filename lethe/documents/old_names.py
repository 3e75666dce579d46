"""Names that a package has no more: what to write now."""

import re
import sys
from pathlib import Path
from typing import NoReturn

from lethe.errors import InputError

RENAMED = {
    "lethe.Ridge": "lethe.regularisers.L2",
    "lethe.ElasticNet": "lethe.regularisers.L1L2",
    "lethe.audit.Rule": "lethe.audit.statistics.rules.ThresholdRule",
    "lethe.estimators.MECHANISMS": "lethe.estimators.choice.choose.NAMES",
    "lethe.features.RandomConvolutions2d": "lethe.estimators.features.images.RandomConvolutions2d",
    "lethe.features.Scattering2d": "lethe.estimators.features.scattering.Scattering2d",
    "lethe.features.synthetic_images": "lethe.estimators.features.images.synthetic_images",
    "lethe.heavy_tailed.Ball": "lethe.heavy_tailed.BallDomain",
    "lethe.heavy_tailed.Box": "lethe.heavy_tailed.sets.BoxDomain",
    "lethe.ledger.Line": "lethe.ledger.accounts.Reservation",
    "lethe.train.TrainingCallback": "lethe.train.Callback",
    "lethe.train.clip.Part": "lethe.train.clip.parts.part.ParameterGradients",
    "lethe.train.clip.Rows": "lethe.train.clip.parts.part.MaterialisedGradients",
    "lethe.train.clip.register_rule": "lethe.train.register_rule",
}
NAMESPACES = ("batches", "guarantees", "losses", "noise", "regularisers", "schedules")


def refuse_old_name(package: str, name: str) -> NoReturn:
    """What `package` answers by for a name that it does not have: an InputError with the name to write, where there is one.

    An AttributeError's text would be hidden by `from package import name`.
    """
    if not name.startswith("_") and (new := RENAMED.get(f"{package}.{name}") or _definition(package, name)):
        raise InputError(f"{package} has no {name}.", remedy=f"write {new}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


def _definition(package: str, name: str) -> str | None:
    """The namespace that lists the name, if it is asked of `lethe`; else the module of the package that defines it."""
    for home in NAMESPACES if package == "lethe" else ():
        if name in sys.modules[f"lethe.{home}"].__all__:
            return f"lethe.{home}.{name}"
    root = Path(__file__).parents[1]
    defines = re.compile(rf"^(?:class |def )?{re.escape(name)}\b(?:[(:]| =)", flags=re.MULTILINE)
    for file in sorted(root.joinpath(*package.split(".")[1:]).rglob("*.py")):
        if defines.search(file.read_text()):
            return f"{'.'.join(file.relative_to(root.parent).with_suffix('').parts).removesuffix('.__init__')}.{name}"
    return None
