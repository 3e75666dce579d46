r"""Table 1 of Hong et al. 2022: noise, number of steps and excess risk of ten methods, as printed.

Losses that are 1-smooth and 1-Lipschitz, PL unless said otherwise; $R_e = \epsilon^2/\ln(1/\delta)$. Orders, never guarantees.

Reference: Hong, Wang, Zhou 2022, FAccT, Table 1 and Appendix B; doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import math

from lethe_experiments.rates.comparators import Row, Setting

_CIRCULAR = "names the budget R though it spends none: it is only the gap left after so many steps, and more steps leave less"


def _shared(setting: Setting, step: float) -> float:
    return setting.steps / setting.approximate_budget


def _own_shared(setting: Setting, step: float) -> float:
    return setting.steps / setting.budget


def _adjusted(setting: Setting) -> float:
    budget, n, d = setting.approximate_budget, setting.records, setting.dimension
    return min(math.sqrt(d) / (n * budget), d * math.log(n) / (n**2 * budget**2))


def _growing_noise(setting: Setting, step: float) -> float:
    n = setting.round_records or setting.records
    return n**2 * math.log(n / setting.delta) / setting.approximate_budget


def _growing(setting: Setting) -> float:
    log_failure = math.log(1.0 / setting.failure)
    return setting.dimension**2 * log_failure**2 / (setting.approximate_budget * setting.records ** (1.0 - setting.exponent))


def _adam(setting: Setting) -> float:
    n, d = setting.records, setting.dimension
    return math.sqrt(d) * math.log(n * d * setting.epsilon / (1.0 - setting.failure)) / (n * setting.approximate_budget)


def _momentum_noise(setting: Setting, step: float) -> float:
    gamma, steps = setting.gamma, setting.steps
    return (gamma ** (steps + step) + gamma ** ((steps - step) / 2.0)) / setting.budget


def momentum_static(setting: Setting) -> float:
    r"""$\frac{D}{N^2R}(c + \ln N\,1(T > \hat T))$ with $c = 1$."""
    return (1.0 + math.log(setting.records) * setting.late) / setting.information


def momentum_dynamic(setting: Setting) -> float:
    r"""$\frac{D}{N^2R}(1 + \frac{cD}{N^2R}1(T > \hat T))$ with $c = 1$."""
    return (1.0 + setting.late / setting.information) / setting.information


def static(setting: Setting) -> float:
    r"""$D\ln N/(N^2R)$."""
    return math.log(setting.records) / setting.information


def dynamic(setting: Setting) -> float:
    r"""$D/(N^2R)$."""
    return 1.0 / setting.information


STATIC, DYNAMIC = r"D\ln N/(N^2R)", r"D/(N^2R)"
MOMENTUM_STATIC = r"\frac{D}{N^2R}(c + \ln N\,1(T>\hat T))"
MOMENTUM_DYNAMIC = r"\frac{D}{N^2R}(1 + \frac{cD}{N^2R}1(T>\hat T))"

TABLE_1: tuple[Row, ...] = (
    Row(
        key="gd-adv",
        what="noisy descent by advanced composition, 1-strongly convex on a set of diameter 1 (Bassily, Smith, Thakurta 2014)",
        variance_formula=r"\ln(N/\delta)/R_e",
        variance_order=lambda s, step: math.log(s.records / s.delta) / s.approximate_budget,
        bound_formula=r"D\ln^3 N/(N R_e)",
        bound_order=lambda s: s.dimension * math.log(s.records) ** 3 / (s.records * s.approximate_budget),
        remark="seems to be for a sum of losses: a mean would have another factor N below",
    ),
    Row(
        key="gd-ma",
        what="noisy descent by the moments accountant, PL (Wang, Ye, Xu 2017)",
        variance_formula=r"T/R_e",
        variance_order=_shared,
        bound_formula=r"D\ln^2 N/(N^2R_e)",
        bound_order=lambda s: s.dimension * math.log(s.records) ** 2 / (s.records**2 * s.approximate_budget),
    ),
    Row(
        key="gd-ma-adjusted",
        what="the same with a utility that depends on the data (Yu, Zhang, Chen, Yin, Liu 2020)",
        variance_formula=r"T/R_e",
        variance_order=_shared,
        bound_formula=r"\min(\sqrt D/(N R_e),\ D\ln N/(N^2R_e^2))",
        bound_order=_adjusted,
        remark="its powers of R_e are twice those of sqrt(D)/(N epsilon): it seems that epsilon is meant",
    ),
    Row(
        key="gd-adv-growing",
        what="a database that grows, n <= N records a round, 1-strongly convex (Cummings, Krehbiel, Lai, Tantipongpipat 2018)",
        variance_formula=r"n^2\ln(n/\delta)/R_e",
        variance_order=_growing_noise,
        bound_formula=r"D^2\ln^2(1/p)/(R_e N^{1-c})",
        bound_order=_growing,
    ),
    Row(
        key="adam-ma",
        what="Adam (AdaGrad and descent alike): a bound of gradient norms turned into one of losses by PL (Zhou et al. 2020)",
        variance_formula=r"T/R_e",
        variance_order=_shared,
        bound_formula=r"\sqrt D\ln(N D\epsilon/(1-p))/(N R_e)",
        bound_order=_adam,
        remark="its power of R_e is twice that of sqrt(D)/(N epsilon): it seems that epsilon is meant",
    ),
    Row(
        key="gd-non-private",
        what="descent without noise, stopped after so many steps",
        variance_formula="0",
        variance_order=lambda s, step: 0.0,
        bound_formula=DYNAMIC,
        bound_order=dynamic,
        remark=_CIRCULAR,
    ),
    Row(
        key="gd-static",
        what="noisy descent by zCDP, the same noise at every step",
        variance_formula=r"T/R",
        variance_order=_own_shared,
        bound_formula=STATIC,
        bound_order=static,
    ),
    Row(
        key="gd-dynamic",
        what="noisy descent by zCDP, exponentially decaying noise",
        variance_formula=r"\gamma^{(t-T)/2}/R",
        variance_order=lambda s, step: s.gamma ** ((step - s.steps) / 2.0) / s.budget,
        bound_formula=DYNAMIC,
        bound_order=dynamic,
        remark="called optimal because it equals the row without noise, which was chosen to have this value",
    ),
    Row(
        key="momentum-static",
        what="debiased momentum by zCDP, the same noise at every step",
        variance_formula=r"T/R",
        variance_order=_own_shared,
        bound_formula=MOMENTUM_STATIC,
        bound_order=momentum_static,
        remark="T <= That is never asymptotic: That does not grow with N, T does",
    ),
    Row(
        key="momentum-dynamic",
        what="debiased momentum by zCDP, noise by the influence of each step",
        variance_formula=r"(c_1\gamma^{T+t} + c_2\gamma^{(T-t)/2})/R",
        variance_order=_momentum_noise,
        bound_formula=MOMENTUM_DYNAMIC,
        bound_order=momentum_dynamic,
        remark="lists exponents of influences; the noise is of order gamma^(-t/2) up to That and gamma^((t-T)/2) after, and the "
        "indicator belongs to the other term",
    ),
)
