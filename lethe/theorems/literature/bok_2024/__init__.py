"""Bok, Su, Altschuler 2024: shifted interpolation, for full batches, cyclic batches and batches drawn afresh."""

from lethe.theorems.literature.bok_2024.cyclic import Bok2024CGD, Bok2024CGDDomain
from lethe.theorems.literature.bok_2024.full_batch import Bok2024GD, Bok2024GDDomain
from lethe.theorems.literature.bok_2024.sampled import Bok2024SGD, Bok2024SGDDomain
