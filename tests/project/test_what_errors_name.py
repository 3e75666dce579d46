"""Errors are at most three lines, and what they tell people to write exists: arguments, public names, extras and options of the command."""

import ast
import importlib
import inspect
import math
import re
import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from repository import ROOT

from lethe import errors

CALL = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)\(")
NAME = re.compile(r"(?<![\w./-])lethe(?:\.[a-z_]\w*)*(?:\.[A-Za-z_]\w*)(?!\w)")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")

# Functions that look at a delta, or hand one on: who calls them says whether a large one may be meant, or here, why it cannot be.
ASKED_OF_DELTA = {"as_target", "certify", "compare", "delta_for", "epsilon_at", "get_epsilon", "plan", "plan_with_certificate"}
DELTA_IS_ITS_OWN = {
    "lethe/audit/trainers/fault_cases.py": "a constant",
    "lethe/estimators/choice/choose.py": "of a budget, that was looked at",
    "lethe/ledger/spender.py": "the usual one, or a smaller one",
}
ELSEWHERE = {"--nproc-per-node", "--help"}  # of torchrun; of every verb


@cache
def modules() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted((ROOT / "lethe").rglob("*.py"))}


@cache
def texts() -> list[tuple[str, str]]:
    """Where each text of the package stands that is no docstring, and the text; what is filled in later is `...`."""
    found = list[tuple[str, str]]()
    for file, tree in modules().items():
        parts, said = set[int](), set[int]()
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts |= {id(part) for part in node.values}
            if isinstance(node, ast.Expr):
                said.add(id(node.value))
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                whole = "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
                found.append((f"{file}:{node.lineno}", whole))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (parts | said):
                found.append((f"{file}:{node.lineno}", node.value))
    return found


def named(text: str, start: int) -> list[str]:
    """The names of the arguments of a call whose parenthesis opens before `start`."""
    depth, names, end = 1, list[str](), start
    while depth and end < len(text):
        if depth == 1 and (found := re.match(r"(\w+)=(?!=)", text[end:])) and not re.match(r"\w", text[end - 1]):
            names.append(found.group(1))
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[end], 0)
        end += 1
    return names


def takes(*functions: Callable[..., Any]) -> set[str]:
    return {name for function in functions for name in inspect.signature(function).parameters}


def resolved(name: str) -> Any:
    """What a dotted name stands for.

    Raises:
        AttributeError: nothing.
    """
    parts = name.split(".")
    found: Any = importlib.import_module(parts[0])
    for place, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(".".join(parts[:place]))
            except ModuleNotFoundError as error:
                raise AttributeError(name) from error
    return found


def callables() -> dict[str, set[str]]:
    """What people are told to call, and the arguments of each."""
    for package in ("transformers", "trl", "lightning"):
        pytest.importorskip(package)
    import lightning
    from torch.utils.data import DataLoader
    from transformers import TrainingArguments
    from trl.trainer.sft_config import SFTConfig

    import lethe
    from lethe.integrations.lightning import PrivateTraining
    from lethe.integrations.transformers.trainer import PrivacyMixin
    from lethe.ledger import Ledger, Spending
    from lethe.train import Group, Head, Linear, PrivacyEngine, TrainOptions, fit
    from lethe.train.data.map_style import MapStyleSource

    own = {
        "Head": Head,
        "Linear": Linear,
        "TrainOptions": TrainOptions,
        "Group": Group,
        "MapStyleSource": MapStyleSource,
        "Spending": Spending,
    }
    own |= {"PrivacyEngine": PrivacyEngine, "PrivateTraining": PrivateTraining, "fit": fit, "plan": lethe.plan, "Ledger.open": Ledger.open}
    own |= {name: getattr(lethe.batches, name) for name in ("Poisson", "Cyclic", "Shuffled")}
    own |= {"L.Trainer": lightning.Trainer, "Trainer": lightning.Trainer, "DataLoader": DataLoader}
    own |= {"TrainingArguments": TrainingArguments, "SFTConfig": SFTConfig}
    for name in ("recorded_run", "epsilon", "batches", "epochs"):
        own |= dict.fromkeys((name, f"engine.{name}"), getattr(PrivacyEngine, name))
    found = {name: takes(function) for name, function in own.items()}
    found["privatize"] = takes(PrivacyMixin._be_private) | {"trainer"}
    return found


@pytest.mark.nightly(by_day="test_whoever_looks_at_a_delta_says_whether_a_large_one_may_be_meant")  # imports take most of its time
def test_arguments_and_names_that_errors_tell_of_exist() -> None:
    known, looked_at, wrong = callables(), 0, list[str]()
    for place, text in texts():
        for name in NAME.findall(text):
            if name.endswith((".py", ".md", ".json", ".yaml", ".toml")) or place.startswith("lethe/errors/names.py"):  # names that went
                continue
            try:
                resolved(name)
            except AttributeError:
                wrong.append(f"{place}: there is no {name}")
        for call in CALL.finditer(text):
            name, arguments = call.group(1), named(text, call.end())
            if name.startswith("lethe.") and arguments:
                known.setdefault(name, takes(resolved(name)))
            if name in known:
                looked_at += len(arguments)
                wrong += [f"{place}: {name} takes no {argument}" for argument in arguments if argument not in known[name]]
    assert wrong == []
    assert looked_at > 80


def test_extras_that_errors_tell_of_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    told = {(place, extra) for place, text in texts() for extra in re.findall(r"lethe-dp\[([\w,-]+)\]", text)}
    assert len(told) > 5
    assert [(place, extra) for place, extra in sorted(told) if not set(extra.split(",")) <= extras.keys()] == []


def test_options_of_the_command_that_errors_tell_of_exist() -> None:
    typer = pytest.importorskip("typer")
    from lethe.cli.app import app

    verbs: list[Any] = [typer.main.get_command(app)]
    options = set(ELSEWHERE)
    while verbs:
        verb = verbs.pop()
        options |= {option for parameter in verb.params for option in (*parameter.opts, *parameter.secondary_opts)}
        verbs += getattr(verb, "commands", {}).values()
    told = {(place, flag) for place, text in texts() for flag in FLAG.findall(text) if not place.startswith("lethe/report/")}
    assert len(told) > 20
    assert [one for one in sorted(told) if one[1] not in options] == []


def test_whoever_looks_at_a_delta_says_whether_a_large_one_may_be_meant() -> None:
    """The error for a delta of 1/records or more names `allow_large_delta`: every door to it has that argument."""
    silent = []
    for file, tree in modules().items():
        for node in ast.walk(tree):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if name in ASKED_OF_DELTA and isinstance(node, ast.Call) and file not in DELTA_IS_ITS_OWN:
                told = {keyword.arg for keyword in node.keywords}
                silent += [] if told & {"allow_large_delta", None} else [f"{file}:{node.lineno}: {name}"]
    assert silent == []


WIDTH, MOST, FILLED = 140, 3, "x" * 10
RAISED = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.LetheError)}


def longest(node: ast.expr) -> str:
    """A text as it is printed, with ten letters for what is filled in; of two, the longer one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(longest(part) if isinstance(part, ast.Constant) else FILLED for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return longest(node.left) + longest(node.right)
    if isinstance(node, ast.IfExp):
        return max(longest(node.body), longest(node.orelse), key=len)
    return FILLED


def printed(call: ast.Call) -> int:
    """How many lines of a terminal the error takes."""
    given = {keyword.arg: longest(keyword.value) for keyword in call.keywords if keyword.arg in ("source", "remedy")}
    whole = str(errors.LetheError(longest(call.args[0]), **given))
    return sum(math.ceil(len(line) / WIDTH) for line in whole.splitlines())


def raised() -> list[tuple[str, ast.Call]]:
    found = list[tuple[str, ast.Call]]()
    for path in sorted((ROOT / "lethe").rglob("*.py")):
        file = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in RAISED:
                found.append((f"{file}:{node.lineno}", node))
    return found


def test_errors_are_printed_in_three_lines() -> None:
    calls = raised()
    assert len(calls) > 900
    assert [place for place, call in calls if printed(call) > MOST] == []


def test_a_longer_one_is_found() -> None:
    for text, lines in (("f'{got}: " + "a" * 100 + "'", 1), ("'" + "a " * 71 + "', remedy=f'" + "b" * 139 + "{c}'", 4)):
        call = ast.parse(f"InputError({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        assert printed(call) == lines


def test_no_error_speaks_of_what_its_reader_never_named() -> None:
    """Words of the code's insides, which somebody who uses `fit` or an engine cannot look up."""
    inner = re.compile(r"clipper\.recording|NetworkNoise\b.*\bfit\b.*recorder|one's own")
    assert [place for place, call in raised() if inner.search(ast.unparse(call))] == []
