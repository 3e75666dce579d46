"""Lowy & Razaviyayn 2023, arXiv:2209.07403: Figure 1, what is printed, true and larger than ours, and theorems that no solver needs."""
