r"""Kong & Ribero, privacy of the last iterate of DP-SGD on weakly convex losses (arXiv:2407.05237), both versions of the paper.

The first version (July 2024, "cyclically-sampled") is in `first_version`, the revised one (2025, "cyclically-traversed") in
`second_version` and, for its Appendix C, in `corollaries`. The closed forms are functions of the papers' own letters, vectorised over
all of them, and give $\rho$ of $\epsilon(\alpha) = \rho\alpha$; where a step size is beyond what a theorem allows they give infinity.
"""
