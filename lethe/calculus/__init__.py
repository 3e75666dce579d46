"""Maths: pure functions of numbers. Everything above this package gets its tails, conversions and roots from here.

An argument outside its range is an InputError, everywhere.
"""
