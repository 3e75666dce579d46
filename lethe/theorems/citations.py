"""The papers that theorems cite.

Theorems name theirs by `cite(key, ", Theorem 3")`, and certificates print them.
"""

from lethe.certificates.parts import Citation

PAPERS = {
    "altschuler-talwar-2022": "Altschuler, Talwar 2022, Privacy of noisy stochastic gradient descent: more iterations without more "
    "privacy loss, arXiv:2205.13710",
    "balle-wang-2018": "Balle, Wang 2018, Improving the Gaussian mechanism, arXiv:1805.06530, Theorem 8 (conversion)",
    "bok-2024": "Bok, Su, Altschuler 2024, Shifted interpolation for differential privacy, arXiv:2403.00278",
    "bravo-2025": "Bravo, Flores-Mella, Guzmán 2025, Mixing times and privacy analysis for the projected Langevin algorithm under a "
    "modulus of continuity, arXiv:2501.04134",
    "chien-li-2024": "Chien, Li 2024, Convergent privacy loss of noisy-SGD without convexity and smoothness, arXiv:2410.01068",
    "choquette-choo-2023": "Choquette-Choo, McMahan, Rush, Thakurta 2023, Multi-epoch matrix factorization mechanisms for private "
    "machine learning, arXiv:2211.06530 (sensitivity of several participations, of vectors)",
    "choquette-choo-2023-amplified": "Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu 2023, (Amplified) banded matrix "
    "factorization: a unified approach to private training, arXiv:2306.08153",
    "choquette-choo-2024-near-exact": "Choquette-Choo, Ganesh, Haque, Steinke, Thakurta 2024, Near exact privacy amplification for "
    "matrix mechanisms, arXiv:2410.06266 (the pair of all bins, by Monte Carlo)",
    "chourasia-2021": "Chourasia, Ye, Shokri 2021, Differential privacy dynamics of Langevin diffusion and noisy gradient descent, "
    "arXiv:2102.05855 (statement reconstructed)",
    "chua-2024": "Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha, Zhang 2024, How private are DP-SGD implementations?, arXiv:2403.17673",
    "chua-2024-balls": "Chua et al. 2024, Balls-and-bins sampling for DP-SGD, arXiv:2412.16802 (the pair of zero out, one pass, by Monte "
    "Carlo)",
    "chua-2024-scalable": "Chua et al. 2024, Scalable DP-SGD: shuffling vs. Poisson subsampling, arXiv:2411.04205",
    "denisov-2022": "Denisov, McMahan, Rush, Smith, Thakurta 2022, Improved differential privacy for SGD via optimal private linear "
    "operators on adaptive streams, arXiv:2202.08312, Theorem 2.1 (adaptive inputs)",
    "dong-2022": "Dong, Roth, Su 2022, Gaussian differential privacy, arXiv:1905.02383v3",
    "dp-accounting": "Google, dp_accounting: RDP and privacy-loss-distribution accountants",
    "feldman-2018": "Feldman, Mironov, Talwar, Thakurta 2018, Privacy amplification by iteration, arXiv:1808.06651",
    "feldman-shenfeld-2025": "Feldman, Shenfeld 2025, Privacy amplification by random allocation, arXiv:2502.08202",
    "feldman-zrnic-2021": "Feldman, Zrnic 2021, Individual privacy accounting via a Rényi filter, arXiv:2008.11193 (Rényi filters; fixed "
    "bounds)",
    "hong-2022": "Hong, Wang, Zhou 2022, Dynamic privacy budget allocation, FAccT 2022, Theorem 3.5 (the loop)",
    "kaissis-2021": "Kaissis, Knolle, Jungmann, Ziller, Usynin, Rueckert 2021, A unified interpretation of the Gaussian mechanism for "
    "differential privacy through the sensitivity index, arXiv:2109.10528 (statement reconstructed)",
    "kong-ribero-2024": "Kong, Ribero 2024, Privacy of the last iterate in cyclically-sampled DP-SGD on nonconvex composite losses, "
    "arXiv:2407.05237, Proposition 2.2",
    "lethe": "Lethe",
    "mironov-2019": "Mironov, Talwar, Zhang 2019, Renyi differential privacy of the sampled Gaussian mechanism, arXiv:1908.10530",
    "ye-shokri-2022": "Ye, Shokri 2022, Differentially private learning needs hidden state (or much faster convergence), "
    "arXiv:2203.05363 (statement reconstructed)",
}


def cite(key: str, where: str = "") -> Citation:
    """A paper, and where in it: what follows its name, with the comma."""
    return Citation(key=key, text=f"{PAPERS[key]}{where}.")
