"""Every theorem that Lethe implements; of two with the same epsilon the first listed wins.

`accounting.certify` goes through `OURS`, `accounting.compare` through `ALL`; a theorem that is not listed here is never used.
"""

from lethe.theorems.base import Theorem
from lethe.theorems.composition import BudgetFilterTheorem, GaussianComposition
from lethe.theorems.correlated_noise import CorrelatedBinsTheorem, CorrelatedNoiseTheorem, CorrelatedSampledTheorem
from lethe.theorems.holder_shift import HolderShift
from lethe.theorems.literature.altschuler_talwar_2022 import AltschulerTalwar2022, AltschulerTalwar2022Corrected
from lethe.theorems.literature.bok_2024 import Bok2024CGD, Bok2024CGDDomain, Bok2024GD, Bok2024GDDomain
from lethe.theorems.literature.bok_2024_sampled import Bok2024SGD, Bok2024SGDDomain
from lethe.theorems.literature.chien_li_2024 import ChienLi2024, ChienLi2024Holder
from lethe.theorems.literature.chourasia_2021 import Chourasia2021
from lethe.theorems.literature.chua_2024 import Chua2024Fixed, Chua2024Shuffled
from lethe.theorems.literature.feldman_2018 import Feldman2018
from lethe.theorems.literature.kaissis_2021 import Kaissis2021
from lethe.theorems.literature.kong_ribero_2024 import (
    KongRibero2024AnyLoss,
    KongRibero2024BoundedDomain,
    KongRibero2024Corrected,
    KongRibero2024FirstBatch,
)
from lethe.theorems.literature.kong_ribero_2025 import (
    KongRibero2025BoundedDomain,
    KongRibero2025Clipped,
    KongRibero2025CorollaryCorrected,
    KongRibero2025CorollaryStated,
    KongRibero2025IndependentOfPasses,
    KongRibero2025Unclipped,
)
from lethe.theorems.literature.liang_2025 import (
    Liang2025Bounded,
    Liang2025BoundedRestricted,
    Liang2025Corrected,
    Liang2025Unbounded,
    Liang2025UnboundedRestricted,
)
from lethe.theorems.literature.mironov_2019 import Mironov2019
from lethe.theorems.literature.ye_shokri_2022 import YeShokri2022, YeShokri2022FixedOrder
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.sampling import BallsInBinsTheorem, RandomAllocationTheorem, SampledGaussianMechanism
from lethe.theorems.windowed import Windowed

OURS: tuple[Theorem, ...] = (
    OptimalShift(),
    HolderShift(),
    Windowed(),
    SampledGaussianMechanism(),
    BallsInBinsTheorem(),
    RandomAllocationTheorem(),
    GaussianComposition(),
    BudgetFilterTheorem(),
    CorrelatedNoiseTheorem(),
    CorrelatedSampledTheorem(),
    CorrelatedBinsTheorem(),
)
"""What `certify` and `plan` try: together never looser than any sound published bound."""

LITERATURE: tuple[Theorem, ...] = (
    Feldman2018(),
    Mironov2019(),
    Chourasia2021(),
    Kaissis2021(),
    AltschulerTalwar2022(),
    AltschulerTalwar2022Corrected(),
    YeShokri2022(),
    YeShokri2022FixedOrder(),
    Bok2024GD(),
    Bok2024GDDomain(),
    Bok2024CGD(),
    Bok2024CGDDomain(),
    Bok2024SGD(),
    Bok2024SGDDomain(),
    ChienLi2024(),
    ChienLi2024Holder(),
    Chua2024Fixed(),
    Chua2024Shuffled(),
    KongRibero2024AnyLoss(),
    KongRibero2024BoundedDomain(),
    KongRibero2024Corrected(),
    KongRibero2024FirstBatch(),
    KongRibero2025BoundedDomain(),
    KongRibero2025Clipped(),
    KongRibero2025Unclipped(),
    KongRibero2025CorollaryStated(),
    KongRibero2025CorollaryCorrected(),
    KongRibero2025IndependentOfPasses(),
    Liang2025Unbounded(),
    Liang2025UnboundedRestricted(),
    Liang2025Bounded(),
    Liang2025BoundedRestricted(),
    Liang2025Corrected(),
)
"""Published bounds, as their papers state them or corrected, by year; shown by `compare` and by `certify --all`."""

ALL: tuple[Theorem, ...] = (*OURS, *LITERATURE)
