"""How much the noise of each step matters: estimates from synthetic or public data, never from private data.

The influence of step t is by how much one unit of noise variance there raises the expected final loss; a schedule puts more noise where it
is small. Three estimators, which agree where more than one applies: exact on quadratics, by paired retraining, by the adjoint of one path.
"""

from functools import partial

from lethe.errors.names import refuse_old_name
from lethe.influence.adjoint import adjoint_influence
from lethe.influence.data import PublicData, SyntheticData, fit_exponential
from lethe.influence.quadratic import quadratic_influence
from lethe.influence.retraining import PublicTrainer, retraining_influence

__all__ = [
    "PublicData",
    "PublicTrainer",
    "SyntheticData",
    "adjoint_influence",
    "fit_exponential",
    "quadratic_influence",
    "retraining_influence",
]

__getattr__ = partial(refuse_old_name, __name__)
