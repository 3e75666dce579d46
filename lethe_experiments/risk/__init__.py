"""Excess risk of private gradient descent as published (Hong, Wang, Zhou 2022), corrected, and as printed where that is false."""
