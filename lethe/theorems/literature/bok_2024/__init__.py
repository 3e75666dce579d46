"""Bok, Su, Altschuler 2024: shifted interpolation, for full batches, cyclic batches and batches drawn afresh."""
