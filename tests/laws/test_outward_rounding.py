"""What may turn a bound that is no number into 0 stands in one file: elsewhere such operations are refused, or listed with a reason."""

import ast
from collections import Counter
from collections.abc import Iterator

from repository import ROOT

PACKAGE = ROOT / "lethe"
HELPER = "calculus/rounding.py"
ACCOUNTING = ("calculus", "theorems", "mechanisms", "run/losses")

# What these give is a whole number already, whatever their arguments are.
COUNTING = ("argmin", "argmax", "searchsorted", "count_nonzero", "count_above", "len")

_SEEN = "classes, which check_targets has seen to be whole numbers in range"
# file: (rule, how often, why it cannot turn a bound into something smaller)
ALLOWED: dict[str, list[tuple[str, int, str]]] = {
    "calculus/privacy_losses/dominating.py": [("cast to an integer", 1, "knots: rounded places between 0 and a count")],
    "accounting/dp_events.py": [("nextafter", 1, "the smallest float that is not below a quotient, compared as fractions")],
    "calculus/privacy_losses/convolution.py": [
        ("cast to an integer", 3, "ends of a grid, the whole of it where they are no finite number; blocks that only choose a tilt"),
        ("0 before what may be nan", 1, "the first place of a grid; it was seen to be above minus infinity"),
    ],
    "calculus/privacy_losses/distributions.py": [
        ("hides every warning", 2, "masses and losses on a grid; what is nan counts as delta = 1"),
        ("cast to an integer", 2, "places at or before the first loss above the level and behind the last that counts, up to their number"),
    ],
    "calculus/sampled/gaussian.py": [("hides every warning", 1, "width and spread only choose the grid; nan makes no distribution")],
    "calculus/sampled/renyi.py": [
        ("leaves out nan", 4, "the step without sampling bounds it too, where the other bound is no number"),
        ("cast to an integer", 2, "floor and ceiling of orders that were seen to be at most 8192"),
    ],
    "integrations/logging/loggers.py": [("nextafter", 1, "the smallest of 32 bits that is not below an epsilon; nan is infinity")],
    "run/losses/linear.py": [("cast to an integer", 2, "which scores are positive; whole numbers, which is seen in the lines before")],
    "run/losses/softmax.py": [("cast to an integer", 5, _SEEN)],
    "run/losses/softmax_envelope.py": [("cast to an integer", 1, _SEEN)],
    "theorems/literature/bok_2024.py": [("cast to an integer", 1, "at most the number of steps, a window; any window is sound")],
    "theorems/literature/bok_2024_sampled.py": [("cast to an integer", 1, "the next length of a window, below the number of steps")],
    "theorems/literature/ye_shokri_2022.py": [("cast to an integer", 1, "a thousand times the logarithm of a number of batches")],
    "theorems/shift/segments.py": [
        ("cast to an integer", 5, "exponents of finite floats, cut where they would not fit; the root of a length")
    ],
    "theorems/shuffled/passes.py": [("cast to an integer", 1, "places in a pass, at most half its length")],
    "theorems/windowed.py": [("cast to an integer", 1, "the next length of a window, below the number of steps")],
    "train/core/recorder.py": [("nextafter", 1, "lowers the noise that is recorded until it is no more than was added")],
}


def violations(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Rule and line of each operation of the kinds that hide infinity or nan."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, owner = _called(node.func)
        if name == "nextafter" and owner != "torch":
            yield "nextafter", node.lineno
        if name == "astype" and node.args and _integer(node.args[0]):
            yield "cast to an integer", node.lineno
        if (name in ("ceil", "floor", "trunc") and owner == "math") or (name == "int" and not owner and _unbounded(node.args)):
            yield "cast to an integer", node.lineno
        if name == "where" and len(node.args) == 3 and _zero(node.args[2]) and _ordered(node.args[0]):
            yield "0 where a comparison fails", node.lineno
        if name == "max" and not owner and len(node.args) > 1 and _zero(node.args[0]):
            yield "0 before what may be nan", node.lineno
        if name in ("nanmin", "nanmax", "nan_to_num", "fmin", "fmax"):
            yield "leaves out nan", node.lineno
        if name == "errstate" and any(keyword.arg == "all" for keyword in node.keywords):
            yield "hides every warning", node.lineno


def _called(function: ast.expr) -> tuple[str, str]:
    if isinstance(function, ast.Attribute):
        return function.attr, function.value.id if isinstance(function.value, ast.Name) else "?"
    return (function.id, "") if isinstance(function, ast.Name) else ("", "")


def _integer(kind: ast.expr) -> bool:
    text = ast.unparse(kind).removeprefix("np.").strip("'\"")
    return text.startswith(("int", "uint", "long"))


def _unbounded(arguments: list[ast.expr]) -> bool:
    """Quotients, products, powers, roots and their like, whole or in part."""
    functions = ("ceil", "floor", "rint", "round", "sqrt", "exp", "log", "float", "power", "divide")
    inside: list[ast.AST] = []
    waiting: list[ast.AST] = list(arguments)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and _called(node.func)[0] in COUNTING:
            continue
        inside.append(node)
        waiting += ast.iter_child_nodes(node)
    operations = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult | ast.Pow) for node in inside)
    return operations or any(isinstance(node, ast.Call) and _called(node.func)[0] in functions for node in inside)


def _zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and not isinstance(node.value, bool)


def _ordered(condition: ast.expr) -> bool:
    """A comparison that nan fails."""
    kinds = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq)
    return any(isinstance(node, ast.Compare) and any(isinstance(one, kinds) for one in node.ops) for node in ast.walk(condition))


def test_only_one_file_rounds_outward() -> None:
    found: dict[str, Counter[str]] = {}
    places: list[str] = []
    for path in sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / HELPER):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if not name.startswith(ACCOUNTING) and "nextafter" not in text:
            continue
        for rule, line in violations(ast.parse(text)):
            if rule == "nextafter" or name.startswith(ACCOUNTING):
                found.setdefault(name, Counter())[rule] += 1
                places.append(f"{name}:{line}: {rule}")
    allowed = {name: Counter({rule: times for rule, times, _ in entries}) for name, entries in ALLOWED.items()}
    strange = [place for place in places if found[(name := place.split(":")[0])] != allowed.get(name, Counter())]
    assert strange == [], f"use lethe.{HELPER}, or list them here with a reason:\n" + "\n".join(strange)
    assert set(allowed) <= set(found), "listed, and there no more"
    assert all(len(why) > 20 for entries in ALLOWED.values() for _, _, why in entries)


SEEN = """np.nextafter(x, np.inf); math.nextafter(x, 0.0); np.ceil(costs / step).astype(np.int64); x.astype(int); x.astype('int32')
int(np.ceil(x / y)); int(x / y); int(float(x)); math.ceil(x); np.where(squared > 0.0, np.sqrt(squared), 0.0)
np.where((x >= 1) & y, x, 0); max(0.0, x); np.nan_to_num(x); np.nanmin(x); np.errstate(all='ignore')"""
LEFT = "torch.nextafter(x, y); int(np.argmin(x)); int(count); np.where(x == 0.0, 0.0, y); max(x, 0.0); x.astype(np.float64)"


def test_the_rules_see_what_they_are_for_and_leave_the_rest_alone() -> None:
    assert all(list(violations(statement)) for statement in ast.parse(SEEN).body)
    assert not list(violations(ast.parse(LEFT)))
