"""Names that moved: the old one, and what to write now."""

from collections.abc import Mapping
from typing import NoReturn

from lethe.errors import InputError

_MOVED: Mapping[str, Mapping[str, str]] = {
    "lethe": {
        "lethe.batches": "BallsInBins Cyclic CyclicPoisson Full Poisson Shuffled ShuffledOnce WithoutReplacement",
        "lethe.regularisers": "L1 Ball Box GroupL1 NuclearNorm Simplex",
        "lethe.schedules": "Constant Explicit Exponential Influence Polynomial Repeated Step TimeDecay",
        "lethe.guarantees": "GDP ZCDP ApproxDP GDPMixture Guarantee Profile RDPCurve",
        "lethe.noise_allocation.allocate": "Allocation",
        "lethe.certificates.comparison": "Comparison Sweep",
        "lethe.certificates.training_record": "TrainingRecord",
        "lethe.accounting.totals.composed": "Total",
        "lethe.accounting.verification": "Verification",
    },
    "lethe.audit": {
        "lethe.audit.statistics.curves": "AnyMechanism GaussianCurve SampledGaussianCurve TradeOffCurve gaussian_epsilon rates_epsilon",
        "lethe.audit.statistics.attack": "Attack Detection attack",
        "lethe.audit.page": "AuditPage",
        "lethe.audit.games.shadow_models": "Candidates draw_candidates",
        "lethe.audit.statistics.rules": "FixedThreshold MultiSplit Split best_threshold",
        "lethe.audit.statistics.counts": "Guesses Rates Tally",
        "lethe.audit.statistics.membership": "MembershipInference printed_epsilon",
        "lethe.audit.statistics.bayesian": "bayesian_epsilon",
        "lethe.audit.statistics.intervals": "clopper_pearson_lower clopper_pearson_upper",
        "lethe.audit.statistics.lower_bounds": "one_run credible point_estimate",
        "lethe.audit.statistics.one_run": "gaussian_guesses_refuted one_run_epsilon one_run_gaussian_mu one_run_p_value",
        "lethe.audit.truths": "linear_last_iterate_epsilon periodic_canary_mus projected_walk_epsilon",
        "lethe.audit.statistics.scores": "lira_offline lira_online rmia scaled_confidence",
        "lethe.audit.statistics.sampled_composition": "sampled_epsilon",
        "lethe.audit.statistics.result": "AuditResult",
        "lethe.audit.config": "OneRunGame",
    },
    "lethe.audit.games": {
        "lethe.audit.games.trials": "CanaryRun FinalTrial Observations RecordTrial StepsTrial TrainFunction World",
        "lethe.audit.games.canaries": "Data Record blank least_moved_direction mislabelled random_directions replaced",
        "lethe.audit.games.gradient_game": "GradientGame",
        "lethe.audit.games.scores": "OneRunScores TwoWorldScores",
        "lethe.audit.games.two_worlds": "SingleTrials Trials play",
        "lethe.audit.games.verdict": "audit_canaries audit_worlds usual_guesses usual_ranks",
        "lethe.audit.games.observed_steps": "audit_steps watch_steps",
    },
    "lethe.audit.trainers": {
        "lethe.audit.trainers.training": "AuditedTraining RunTraining claim_of",
        "lethe.audit.trainers.self_tests": "SelfTest SelfTestRow self_test",
    },
    "lethe.estimators": {
        "lethe.estimators.models.classifiers": "PrivateClassifier",
        "lethe.estimators.models.linear_model": "PrivateLinearModel",
        "lethe.estimators.models.regressors": "PrivateRegressor",
        "lethe.estimators.preprocessing.transformer": "PrivateTransformer",
    },
    "lethe.features": {
        "lethe.estimators.features.random_convolutions2d": "RandomConvolutions2d",
        "lethe.estimators.features.scattering2d": "Scattering2d ScatteringPath",
        "lethe.estimators.features.synthetic_images": "synthetic_images",
    },
    "lethe.heavy_tailed": {
        "lethe.heavy_tailed.oracles.clipped": "ClippedMean",
        "lethe.heavy_tailed.oracles.coordinate": "CoordinateMedian",
        "lethe.heavy_tailed.oracles.exact": "ExactMean",
        "lethe.heavy_tailed.oracles.base": "MeanOracle",
        "lethe.heavy_tailed.private_moments": "MomentEstimate estimated_moments private_moment",
        "lethe.heavy_tailed.solution": "Phase Solution",
        "lethe.heavy_tailed.single_pass.settings": "Plan",
        "lethe.heavy_tailed.shuffle.oracles": "ShuffledClippedMean ShuffledCoordinateMedian",
        "lethe.heavy_tailed.sets": "WholeSpace",
        "lethe.heavy_tailed.single_pass.accelerated_plans": "accelerated_optimised accelerated_practical accelerated_theory",
        "lethe.heavy_tailed.localisation.plans": "localised_practical localised_theory",
        "lethe.heavy_tailed.single_pass.plans": "one_pass_optimised one_pass_practical one_pass_theory",
        "lethe.heavy_tailed.single_pass.proximal": "proximal proximal_optimised proximal_practical proximal_theory",
        "lethe.heavy_tailed.localisation.solver": "localised regularised_descent",
        "lethe.heavy_tailed.localisation.sampled": "sampled_localised",
        "lethe.heavy_tailed.localisation.strongly_convex": "strongly_convex",
        "lethe.heavy_tailed.single_pass.accelerated": "accelerated",
        "lethe.heavy_tailed.single_pass.solver": "one_pass",
    },
    "lethe.influence": {
        "lethe.influence.estimate": "Estimate",
        "lethe.influence.quadratic": "PublicCurvatures",
        "lethe.influence.retraining": "Train",
        "lethe.influence.probes": "choose_probes",
    },
    "lethe.ledger": {
        "lethe.ledger.accounts": "Account Reservation",
        "lethe.ledger.budgets": "DataSet",
        "lethe.ledger.paying": "PaidRelease",
        "lethe.ledger.verified": "Verified",
    },
    "lethe.train.clip": {
        "lethe.train.clip.groups": "METHODS Group Method",
        "lethe.train.clip.rules.rule": "Call",
        "lethe.train.clip.clipper": "Clipper",
        "lethe.train.clip.parts.outer_products": "OuterProducts",
        "lethe.train.clip.parts.token_rows": "TokenRows",
        "lethe.train.clip.ways.layers": "per_layer",
    },
}
"""Module of the old name -> module of the new one -> names that are the same in both."""

_RENAMED: Mapping[str, Mapping[str, str]] = {
    "lethe": {"Ridge": "lethe.regularisers.L2", "ElasticNet": "lethe.regularisers.L1L2"},
    "lethe.audit": {"Rule": "lethe.audit.statistics.rules.ThresholdRule"},
    "lethe.estimators": {"MECHANISMS": "lethe.estimators.choice.choose.NAMES"},
    "lethe.heavy_tailed": {"Ball": "lethe.heavy_tailed.BallDomain", "Box": "lethe.heavy_tailed.sets.BoxDomain"},
    "lethe.report": {"Curve": "lethe.report.document.curves.Curve"},
    "lethe.train.clip": {
        "Part": "lethe.train.clip.parts.part.ParameterGradients",
        "Rows": "lethe.train.clip.parts.part.MaterialisedGradients",
        "register_rule": "lethe.train.register_rule",
    },
}

OLD_NAMES: dict[str, dict[str, str]] = {
    module: {
        **{name: f"{new}.{name}" for new, names in _MOVED.get(module, {}).items() for name in names.split()},
        **_RENAMED.get(module, {}),
    }
    for module in {**_MOVED, **_RENAMED}
}
"""Module -> a name that it had -> the name to write."""


def refuse_old_name(module: str, name: str) -> NoReturn:
    """Answer a name that `module` has no more by an InputError, since `from module import name` hides the message of an AttributeError."""
    if new := OLD_NAMES.get(module, {}).get(name):
        raise InputError(f"{module} has no {name} any more.", remedy=f"write {new}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
