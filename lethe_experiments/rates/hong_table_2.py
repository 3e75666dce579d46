r"""Table 2 of Hong et al. 2022: true excess risk and number of steps, as printed.

Losses that are 1-smooth, 1-Lipschitz and $\mu$-strongly convex; $R_e = \epsilon^2/\ln(1/\delta)$. Orders, never guarantees.

Reference: Hong, Wang, Zhou 2022, FAccT, Table 2, eqs. (16) and (17); doi:10.1145/3531146.3533070.
"""

from __future__ import annotations

import math

from lethe_experiments.rates.comparators import Formula, Row, Setting
from lethe_experiments.rates.hong_table_1 import (
    DYNAMIC,
    MOMENTUM_DYNAMIC,
    MOMENTUM_STATIC,
    STATIC,
    dynamic,
    momentum_dynamic,
    momentum_static,
    static,
)

_TOO_SMALL = "by a factor sqrt(N) too small in its first term: Theorem 4.11 has an N that does not belong there; read N R as R"
_DROPPED = "leaves out the stability term G^2 eta T / N, which is the larger one for N above D / R"


def _first(setting: Setting) -> float:
    top = math.sqrt(setting.dimension) * math.log(setting.records) ** 2 * math.log(1.0 / setting.failure)
    return top / (setting.failure * setting.strong_convexity * setting.records * setting.approximate_budget)


def _snowball(setting: Setting) -> float:
    n = setting.records
    return (1.0 / math.sqrt(n) + 2.0 * math.sqrt(setting.dimension) / (math.sqrt(setting.budget) * n)) * math.log(n)


def _variance_reduced(setting: Setting) -> float:
    return setting.dimension * math.log(setting.records) / (setting.strong_convexity * setting.records**2 * setting.approximate_budget)


def _one_pass(setting: Setting) -> float:
    n = setting.records
    return max(math.sqrt(setting.dimension) / (n * math.sqrt(setting.approximate_budget)), 1.0 / math.sqrt(n))


def _likely(factor: Formula) -> Formula:
    def bound(setting: Setting) -> float:
        inside = setting.dimension * math.log(1.0 / setting.failure) / (setting.records * setting.budget) * factor(setting)
        scale = setting.gradient_bound**2 / (setting.strong_convexity * setting.records)
        return scale * (math.sqrt(inside) + 4.0 / setting.failure)

    return bound


def _likely_row(key: str, what: str, inside: str, factor: Formula) -> Row:
    formula = rf"\frac{{G^2}}{{\mu N}}\Big(\sqrt{{\frac{{D\ln(1/p)}}{{NR}}{inside}}} + \frac4p\Big)"
    return Row(
        key=f"likely-{key}", what=f"{what}, with probability 1 - p", bound_formula=formula, bound_order=_likely(factor), remark=_TOO_SMALL
    )


def _stable_row(key: str, what: str, formula: str, bound: Formula) -> Row:
    return Row(key=f"stable-{key}", what=f"{what}, by uniform stability", bound_formula=formula, bound_order=bound, remark=_DROPPED)


_METHODS = {
    "gd-static": "noisy descent, the same noise at every step",
    "gd-dynamic": "noisy descent, exponentially decaying noise",
    "momentum-static": "debiased momentum, the same noise at every step",
    "momentum-dynamic": "debiased momentum, noise by influence",
}

TABLE_2: tuple[Row, ...] = (
    Row(
        key="true-gd-adv",
        what="noisy descent by advanced composition (Bassily, Smith, Thakurta 2014)",
        bound_formula=r"\sqrt D\ln^2 N\ln(1/p)/(p\mu N R_e)",
        bound_order=_first,
        steps_formula="N^2",
        steps_order=lambda s: float(s.records) ** 2,
    ),
    Row(
        key="true-svrg-ma",
        what="variance-reduced descent by the moments accountant (Wang, Ye, Xu 2017)",
        bound_formula=r"D\ln N/(\mu N^2R_e)",
        bound_order=_variance_reduced,
        steps_formula=r"\ln(N^2R_e/D)",
        steps_order=lambda s: math.log(s.records**2 * s.approximate_budget / s.dimension),
    ),
    Row(
        key="true-snowball",
        what="batches that grow, by zCDP (Feldman, Koren, Talwar 2020)",
        bound_formula=r"(1/\sqrt N + 2\sqrt D/(\sqrt R N))\ln N",
        bound_order=_snowball,
        steps_formula=r"N^2/(16D/R^2 + 4N)",
        steps_order=lambda s: s.records**2 / (16.0 * s.dimension / s.budget**2 + 4.0 * s.records),
    ),
    Row(
        key="true-sgd-ma",
        what="stochastic descent by the moments accountant, convex (Bassily, Feldman, Talwar, Thakurta 2019)",
        bound_formula=r"\max(\sqrt D/(N\sqrt{R_e}),\ 1/\sqrt N)",
        bound_order=_one_pass,
        steps_formula=r"\min(N/8,\ N^2R_e/(32D))",
        steps_order=lambda s: min(s.records / 8.0, s.records**2 * s.approximate_budget / (32.0 * s.dimension)),
    ),
    _likely_row("gd-static", _METHODS["gd-static"], r"\ln N", lambda s: math.log(s.records)),
    _likely_row("gd-dynamic", _METHODS["gd-dynamic"], "", lambda s: 1.0),
    _likely_row("momentum-static", _METHODS["momentum-static"], r"(c + \ln N\,1(T>\hat T))", lambda s: 1.0 + math.log(s.records) * s.late),
    _likely_row(
        "momentum-dynamic", _METHODS["momentum-dynamic"], r"(1 + \frac{cD}{N^2R}1(T>\hat T))", lambda s: 1.0 + s.late / s.information
    ),
    _stable_row("gd-non-private", "descent without noise", DYNAMIC, dynamic),
    _stable_row("gd-static", _METHODS["gd-static"], STATIC, static),
    _stable_row("gd-dynamic", _METHODS["gd-dynamic"], DYNAMIC, dynamic),
    _stable_row("momentum-static", _METHODS["momentum-static"], MOMENTUM_STATIC, momentum_static),
    _stable_row("momentum-dynamic", _METHODS["momentum-dynamic"], MOMENTUM_DYNAMIC, momentum_dynamic),
)
