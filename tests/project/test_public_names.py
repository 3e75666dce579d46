"""The public names: few, each with one meaning, on a page; those of a namespace are sent there."""

import ast
import importlib
import re
from collections import defaultdict
from typing import Any

import pytest
from repository import ROOT

import lethe
from lethe.errors import names as error_names

TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.glob("lethe/**/*.py"))}
MOST_NAMES, MOST_PARAMETERS = 172, 14
# Named in a document by their kind, or parts of a list that would have a hole without them.
ON_NO_PAGE = frozenset(
    [
        "RDPCurve",
        "WithoutReplacement",
        "GroupL1",
        "L1L2",
        "NuclearNorm",
        "Simplex",
        "Ball",
        "Box",
        "Constant",
        "Polynomial",
        "TimeDecay",
        "CalibrationError",
        "HypothesisError",
        "LargeDeltaWarning",
        "LetheWarning",
        "MissingExtraError",
        "LetheError",
        "InputError",
        "__version__",
    ]
)


def public_names() -> dict[str, list[str]]:
    """File -> its `__all__`."""
    return {
        file: [ast.literal_eval(one) for one in node.value.elts]
        for file, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" and isinstance(node.value, ast.List)
    }


def test_the_public_names_are_few() -> None:
    names = {name for listed in public_names().values() for name in listed}
    assert len(names) <= MOST_NAMES, len(names)


def test_no_class_name_stands_for_two_things() -> None:
    where: defaultdict[str, list[str]] = defaultdict(list)
    for file, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(file)
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def test_no_public_function_takes_too_many_parameters() -> None:
    wide = {}
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
                wide |= {f"{file}: {node.name}": count} if count > MOST_PARAMETERS else {}
    assert wide == {}


def test_every_public_name_is_on_a_page() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))))
    words = set(re.findall(r"\w+", text))
    names = {name for listed in public_names().values() for name in listed}
    assert names - words - ON_NO_PAGE == set()


# Names that packages had before there were 150 in all.
OLD = {
    "lethe": "Poisson Cyclic BallsInBins Ridge ElasticNet Ball Constant GDP RDPCurve Allocation Comparison Total Verification",
    "lethe.audit": "AnyMechanism GaussianCurve AuditPage Candidates Split Guesses bayesian_epsilon AuditResult OneRunGame Rule rmia",
    "lethe.audit.games": "CanaryRun RecordTrial Data Record blank replaced OneRunScores play audit_canaries usual_ranks",
    "lethe.audit.trainers": "AuditedTraining RunTraining claim_of",
    "lethe.estimators": "PrivateClassifier PrivateLinearModel PrivateRegressor PrivateTransformer MECHANISMS",
    "lethe.features": "RandomConvolutions2d Scattering2d synthetic_images",
    "lethe.heavy_tailed": "Ball Box ClippedMean CoordinateMedian MomentEstimate Phase Plan WholeSpace localised strongly_convex",
    "lethe.influence": "Estimate PublicCurvatures Train choose_probes",
    "lethe.ledger": "Account Line DataSet PaidRelease Reservation Verified",
    "lethe.report": "Curve",
    "lethe.train": "TrainingCallback StepEnd NoisePolicy LinearPredictor",
    "lethe.train.clip": "METHODS Group Call Clipper OuterProducts Part Rows register_rule",
}


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, names in OLD.items() for name in names.split()])
def test_an_old_name_answers_with_one_that_can_be_imported(package: str, name: str) -> None:
    with pytest.raises(lethe.InputError, match=rf"{package} has no {name}\.\n  Do: write lethe\.") as caught:
        exec(f"from {package} import {name}", {})
    module, _, new = str(caught.value).rpartition("write ")[2].rpartition(".")
    assert hasattr(importlib.import_module(module), new)


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    for package in OLD:
        assert not hasattr(importlib.import_module(package), "Potato")
    assert error_names._definition("lethe", "audit") is None  # a package, imported or not


@pytest.mark.parametrize("name", ["batches", "guarantees", "losses", "noise", "regularisers", "schedules"])
def test_a_namespace_is_a_module_that_can_be_imported_from(name: str) -> None:
    module = importlib.import_module(f"lethe.{name}")
    assert module is getattr(lethe, name)
    assert all(hasattr(module, one) for one in module.__all__)


@pytest.mark.parametrize(("values", "fields"), [((256, 300), {}), ((256,), {"size": 256})])
def test_only_the_first_field_goes_without_its_name(values: tuple[Any, ...], fields: dict[str, Any]) -> None:
    assert lethe.batches.Poisson(256) == lethe.batches.Poisson(size=256)
    assert lethe.regularisers.L2(0.1).strength == lethe.schedules.Constant(0.1).value
    with pytest.raises(lethe.InputError, match="name the fields: size, truncate_at"):
        lethe.batches.Poisson(*values, **fields)
