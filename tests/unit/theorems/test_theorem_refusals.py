"""Each theorem refuses by name a run that one of its hypotheses does not hold for: theorem, change, hypothesis."""

import math
from typing import Any

import numpy as np
import pytest
from helpers import batches, make_run

from lethe.certificates.findings import first_failure
from lethe.errors import HypothesisError, InputError
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step, plain_step, ridge_contraction
from lethe.theorems.registry import ALL
from lethe.theorems.shift.engine import solve
from lethe.theorems.shuffled import positions
from lethe.theorems.shuffled.reshuffled import reshuffled

NAN, INF = math.nan, math.inf

CONVEX = {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0}
SMOOTH = {"kind": "smooth", "smoothness": 0.1, "gradient_bound": 1.0}
STRONG = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.9, "gradient_bound": 1.0}
WEAK = {"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2, "gradient_bound": 1.0}  # 1/(2(m + M)) = 2
HOLDER = {"kind": "holder", "constant": 0.1, "exponent": 0.5, "gradient_bound": 1.0}
DIFFERENCES = {"kind": "strongly_convex", "strong_convexity": 3.0, "smoothness": 4.0, "gradient_bound": 1.0}
BALL = {"kind": "ball", "radius": 0.5}
CHANGES: dict[str, dict[str, Any]] = {
    "all released": {"release": "all"},
    "last released": {"release": "last"},
    **{design: {"batches": batches(design, 10)} for design in ("full", "cyclic", "poisson", "shuffled", "shuffled_once", "balls_in_bins")},
    "fixed size": {"batches": batches("without_replacement", 10)},
    "add or remove": {"batches": batches("full", 10), "neighbours": "add_or_remove"},
    "replace one": {"neighbours": "replace_one"},
    "unknown loss": {"loss": {"kind": "unknown", "gradient_bound": 1.0}},
    "smooth loss": {"loss": SMOOTH},
    "convex loss": {"loss": CONVEX},
    "holder loss": {"loss": HOLDER},
    "clipped": {"clip_norm": 0.1},
    "long steps": {"step_size": 4.01},
    "changing steps": {"step_size": {"schedule": "exponential", "first": 0.25, "ratio": 0.9}},
    "changing noise": {"noise_multiplier": {"schedule": "exponential", "first": 5.0, "ratio": 0.9}},
    "pass ends": {"noise_at": "pass_ends"},
    "no noise": {"noise_multiplier": 0.0},
    "silent end": {"noise_multiplier": [*[5.0] * 49, 0.0]},
    "cut short": {"steps": 15},
    "less than a pass": {"steps": 9},
    "no domain": {"regulariser": None},
    "bounded differences": {"loss": DIFFERENCES, "regulariser": BALL, "clip_norm": None, "neighbours": "replace_one"},
}
LAST, SCHEDULE = {"all released": "release"}, {"pass ends": "constant schedule", "changing steps": "constant schedule"}
CURVED = LAST | SCHEDULE | {"smooth loss": "curvature", "unknown loss": "smoothness", "clipped": "clipping", "long steps": "step size"}
BOK = CURVED | {
    "poisson": "batches",
    "shuffled": "batches",
    "balls_in_bins": "batches",
    "holder loss": "smoothness",
    "no noise": "constant schedule",
}
ONE_STEP = LAST | {
    "add or remove": "neighbours",
    "poisson": "batches",
    "unknown loss": "smoothness",
    "no domain": "domain",
    "silent end": "noise",
}
SEVERAL = LAST | SCHEDULE | {"add or remove": "neighbours", "poisson": "batches", "shuffled": "batches", "unknown loss": "smoothness"}
FULL, DRAWN, FIXED, ONCE = ({"batches": batches(design, 10)} for design in ("full", "poisson", "without_replacement", "shuffled_once"))
BINS = {"batches": batches("balls_in_bins", 10), "release": "all"}
RANDOM = LAST | {"cyclic": "random batches", "unknown loss": "smoothness", "no domain": "domain or contraction", "silent end": "noise"}
AT = CURVED | {"cyclic": "batches", "no domain": "domain"}
LIANG = DRAWN | {"neighbours": "zero_out", "loss": CONVEX, "regulariser": BALL, "noise_multiplier": 20.0}
LIANG_ALL = LAST | SCHEDULE | {"cyclic": "batches", "balls_in_bins": "batches"}
LIANG_BOUNDED = {"no domain": "domain", "unknown loss": "smoothness"}
# theorem: (a run that it is about, what breaks which hypothesis)
TABLE: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "optimal-shift": ({"loss": CONVEX}, LAST | {"unknown loss": "smoothness"}),
    "holder-shift": (FULL | {"loss": HOLDER, "regulariser": BALL}, LAST | {
        "unknown loss": "Hölder gradient", "convex loss": "Hölder gradient", "no domain": "domain", "poisson": "batches",
    }),
    "windowed": (DRAWN | {"loss": CONVEX, "regulariser": BALL, "neighbours": "zero_out"}, RANDOM
        | {"bounded differences": "gradient bound"}),
    "sampled-gaussian": (DRAWN, {"cyclic": "random batches", "balls_in_bins": "random batches"}),
    "random-allocation": (BINS | {"batches": batches("random_allocation", 10)}, {
        "shuffled": "batches", "balls_in_bins": "batches", "poisson": "batches", "silent end": "noise",
        "bounded differences": "gradient bound",
    }),
    "balls-in-bins": (BINS | {"loss": CONVEX}, {
        "shuffled_once": "batches", "poisson": "batches", "silent end": "noise", "pass ends": "noise",
        "bounded differences": "gradient bound",
    }),
    "feldman-2018": ({"loss": CONVEX}, CURVED | {"shuffled": "batches", "cut short": "passes"}),
    "mironov-2019": (DRAWN | {"neighbours": "zero_out"}, {
        "fixed size": "batches", "cyclic": "batches", "replace one": "neighbours", "pass ends": "noise",
    }),
    "chourasia-2021": (FULL | {"loss": STRONG}, CURVED | {"cyclic": "batches", "convex loss": "curvature"} | {"pass ends": ""}),
    "altschuler-talwar-2022": (DRAWN | {"loss": CONVEX, "regulariser": BALL, "step_size": 0.25, "neighbours": "zero_out"}, AT),
    "altschuler-talwar-2022-corrected": (FIXED | {"loss": CONVEX, "regulariser": BALL, "step_size": 0.25}, AT),
    "ye-shokri-2022": (ONCE | {"loss": STRONG}, CURVED | {"shuffled": "batches", "full": "batches", "cut short": "passes",
        "convex loss": "curvature"}),
    "ye-shokri-2022-fixed-order": ({"loss": STRONG}, CURVED | {"shuffled": "batches", "cut short": "passes", "convex loss": "curvature"}),
    "bok-2024-gd": (FULL | {"loss": CONVEX}, BOK | {"pass ends": ""}),  # one step a pass: every step is a pass's end
    "bok-2024-gd-domain": (FULL | {"loss": CONVEX, "regulariser": BALL}, BOK | {"pass ends": "", "no domain": "domain"}),
    "bok-2024-cgd": ({"loss": CONVEX}, BOK | {"cut short": "passes"}),
    "bok-2024-cgd-domain": ({"loss": CONVEX, "regulariser": BALL}, BOK | {"cut short": "passes", "no domain": "domain"}),
    "bok-2024-sgd": (FIXED | {"loss": CONVEX}, BOK),
    "bok-2024-sgd-domain": (FIXED | {"loss": CONVEX, "regulariser": BALL}, BOK | {"no domain": "domain"}),
    "chien-li-2024": (FULL | {"loss": SMOOTH}, LAST | {
        "cyclic": "batches", "poisson": "batches", "changing steps": "constant schedule", "no noise": "constant schedule",
        "holder loss": "smoothness", "unknown loss": "smoothness",
    }),
    "chien-li-2024-holder": (FULL | {"loss": HOLDER}, LAST | {"fixed size": "batches", "smooth loss": "Hölder gradient"}),
    "chua-2024-fixed": ({}, {"shuffled_once": "batches", "poisson": "batches", "changing noise": "constant noise",
        "pass ends": "constant noise"}),
    "chua-2024-shuffled": (ONCE | {"release": "all", "neighbours": "zero_out"}, {
        "last released": "release", "cyclic": "batches", "balls_in_bins": "batches", "replace one": "neighbours", "cut short": "passes",
        "pass ends": "constant noise",
    }),
    "liang-2025-3.3": (LIANG, LIANG_ALL | {"replace one": "neighbours"}),
    "liang-2025-3.3-restricted": (LIANG, LIANG_ALL | {"replace one": "neighbours"}),
    "liang-2025-3.4": (LIANG, LIANG_ALL | {"replace one": "neighbours"} | LIANG_BOUNDED),
    "liang-2025-3.4-restricted": (LIANG, LIANG_ALL | {"replace one": "neighbours"} | LIANG_BOUNDED),
    "liang-2025-3.4-corrected": (LIANG, LIANG_ALL | LIANG_BOUNDED),
    "kong-ribero-2024-4.3": ({"loss": WEAK}, LAST | SCHEDULE | {
        "add or remove": "neighbours", "poisson": "batches", "less than a pass": "passes", "bounded differences": "gradient bound",
    }),
    "kong-ribero-2024-4.4": ({"loss": WEAK, "regulariser": BALL}, ONE_STEP | {"long steps": "step size"}),
    "kong-ribero-2024-4.4-corrected": ({"loss": WEAK, "regulariser": BALL}, ONE_STEP),
    "kong-ribero-2024-4.5": ({"loss": WEAK}, SEVERAL | {"less than a pass": "passes", "long steps": "step size"}),
    "kong-ribero-2025-2.2": ({"loss": WEAK, "regulariser": BALL}, ONE_STEP | {"long steps": "step size"}),
    "kong-ribero-2025-2.3-clipped": ({"loss": WEAK, "clip_norm": 0.5}, SEVERAL | {"long steps": "step size"}),
    "kong-ribero-2025-2.3-unclipped": ({"loss": WEAK}, SEVERAL | {"clipped": "clipping", "long steps": "step size"}),
    "kong-ribero-2025-C.2": ({"loss": WEAK, "step_size": 2.0}, SEVERAL | {"clipped": "clipping", "long steps": "step size"}),
    "kong-ribero-2025-C.2-corrected": ({"loss": WEAK, "step_size": 2.0}, SEVERAL | {"clipped": "clipping", "long steps": "step size"}),
    "kong-ribero-2025-C.3": ({"loss": WEAK, "step_size": 0.4}, SEVERAL | {"clipped": "clipping", "less than a pass": "passes"}),
}  # fmt: skip
ODD: list[tuple[str, dict[str, Any], str]] = [
    ("windowed", {"batches": batches("poisson", 10)}, "domain or contraction"),
    ("kong-ribero-2025-C.2", {"step_size": 1.9999999}, "step size"),
    ("kong-ribero-2025-C.2-corrected", {"batches": {"design": "cyclic", "size": 14}}, "pass length"),  # 7 < 7.27
    ("kong-ribero-2025-C.3", {"step_size": 0.4473}, "step size"),  # 1/sqrt(5) = 0.44721
    ("kong-ribero-2025-2.3-unclipped", {"step_size": 4.0000001}, "step size"),
    ("chourasia-2021", {"step_size": 1 / 0.9}, "step size"),
    ("ye-shokri-2022", {"step_size": 2.0}, "step size"),  # 2 / (0.9 + 0.1)
    ("ye-shokri-2022", {"records": 10}, "batches a pass"),
    ("mironov-2019", {"batches": {"design": "poisson", "size": 21}}, "sampling rate"),
    ("mironov-2019", {"noise_multiplier": 3.99}, "noise"),
    ("liang-2025-3.3-restricted", {"batches": {"design": "poisson", "size": 21}}, "batch share"),
    ("liang-2025-3.4-restricted", {"noise_multiplier": 8.0}, "noise level"),
    ("altschuler-talwar-2022", {"step_size": 0.41}, "step size"),  # a Poisson batch may hold all 100 records: 2 / 0.5 times 10 / 100
    ("altschuler-talwar-2022", {**FIXED, **CHANGES["bounded differences"]}, "gradient bound"),
    ("balls-in-bins", {"noise_at": "pass_ends", "pass_weights": 1.0}, "pass averages"),
    ("balls-in-bins", {"noise_budget": 1.0}, "noise known in advance"),
]
CASES = [(name, CHANGES[change], hypothesis) for name, (_, broken) in TABLE.items() for change, hypothesis in broken.items() if hypothesis]
THEOREMS = {theorem.name: theorem for theorem in ALL}


@pytest.mark.parametrize("name", TABLE)
def test_the_run_that_is_changed_meets_every_hypothesis(name: str) -> None:
    assert first_failure(THEOREMS[name].examine(make_run(**TABLE[name][0]))) is None


@pytest.mark.parametrize(("name", "changes", "hypothesis"), [*CASES, *ODD])
def test_a_broken_hypothesis_is_refused_by_name(name: str, changes: dict[str, Any], hypothesis: str) -> None:
    fields = {**(TABLE[name][0] if changes is not ODD[0][1] else {}), **changes}
    failure = first_failure(THEOREMS[name].examine(make_run(**fields)))
    assert failure is not None
    assert failure.name == hypothesis
    with pytest.raises(HypothesisError, match=name):
        THEOREMS[name].bound(make_run(**fields))


STEPS: list[tuple[Any, ...]] = [*((bad, 0, 1) for bad in (-0.1, NAN, INF, "a", None, True)), (1, NAN, 1), (1, INF, 1), (1, -1.1, 1)]
STEPS += [*((1, 0, bad) for bad in (-1, NAN, INF, [])), (1e200, 0, 1e200), (np.ones(2), 0, np.ones(3))]
SEQUENCES: list[Any] = [
    1.0,
    [],
    [[1.0, 1.0]],
    [1.0],
    *([1.0, bad] for bad in (-1e-9, NAN, INF, None)),
    ["a", "b"],
    [1j, 1.0],
    [True, False],
]
SEQUENCES += [None, [[1.0], [1.0, 2.0]], [10**400, 1]]
DIAMETERS: list[Any] = [-1.0, NAN, [1.0], [1.0, -1.0], [1.0, NAN], "wide", [[1.0, 1.0]]]
RUN: dict[str, Any] = {"lipschitz": [1.0, 1.0], "sensitivity": [1.0, 0.0], "noise_std": [1.0, 1.0]}
PATH = {"lipschitz": [1.0, 0.5], "sensitivity": [0.1, 0.2], "noise_std": [1.0, 2.0], "batches_per_pass": 2}
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    *((step, arguments, {}) for step in (plain_step, generalised_linear_step, clipped_step) for arguments in STEPS),
    *((ridge_contraction, arguments, {}) for arguments in ((-1, 1), (1, -1), (NAN, 1), (1, NAN), (INF, 1), (1, INF), ("a", 1))),
    *(
        (call, (), {**PATH, name: bad})
        for call in (positions.position_mus, positions.worst_position, positions.shuffled_once, reshuffled)
        for name, values in (("batches_per_pass", (0, -1, 2.0, "2", None, True, NAN)), ("noise_std", ([1.0, NAN],)), ("diameter", (-1.0,)))
        for bad in values
    ),
    *((solve, (), {**RUN, name: bad}) for name in RUN for bad in SEQUENCES),
    *((solve, (), {**RUN, "diameter": bad}) for bad in DIAMETERS),
    *((getattr, (solve([1.0], [1.0], [0.0]), name), {}) for name in ("payments", "shifts")),  # mu = inf: nothing can be paid
]


@pytest.mark.parametrize(("call", "arguments", "named"), CALLS)
def test_a_bad_argument_is_refused(call: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        call(*arguments, **named)
    assert "need" in caught.value.what
    assert caught.value.source
    assert caught.value.remedy
