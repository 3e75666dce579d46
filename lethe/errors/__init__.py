"""The errors Lethe raises on purpose. Each says what is wrong, what came and what was needed, where it came from, what to do.

LetheError
├── InputError            a value, a key or a file cannot be used (also a ValueError)
│   ├── UnknownArgumentError  a function takes no argument of that name (also a TypeError)
│   └── UnknownNameError      an object has no attribute of that name (also an AttributeError)
├── HypothesisError       a theorem does not apply to a run, or no theorem does
├── CalibrationError      no noise meets the target
├── BudgetExceededError   a budget filter refused to pay
└── MissingExtraError     an optional dependency is not installed (also an ImportError)

A warning says what was done all the same. LetheWarning (a UserWarning) is the root of them: LargeDeltaWarning, of a delta above
1/(10 records); CallbackWarning, of a logger that failed while training went on; RecordByRecordWarning, of a training that computes one
record at a time; UnusedParameterWarning, of a parameter that gets noise to no use.
"""


class LetheError(Exception):
    """The root of the tree: catch it to catch everything Lethe raises on purpose."""

    def __init__(self, what: str, *, source: str | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.source = source
        self.remedy = remedy
        lines = [what]
        if source is not None:
            lines.append(f"  From: {source}")
        if remedy is not None:
            lines.append(f"  Do: {remedy}")
        super().__init__("\n".join(lines))


class InputError(LetheError, ValueError):
    """A value, a key or a file that cannot be used."""


class UnknownArgumentError(InputError, TypeError):
    """A function or a constructor that takes no argument of that name."""


class UnknownNameError(InputError, AttributeError):
    """An object that has no attribute of that name; what stands in its place is said."""


class HypothesisError(LetheError):
    """A theorem's hypotheses fail for a run, or no theorem applies to it."""


class CalibrationError(LetheError):
    """No noise, however large, meets the privacy target."""


class BudgetExceededError(LetheError):
    """A step costs more than is left of the privacy budget; nothing was spent, and the step must not be taken."""


class LedgerError(LetheError):
    """A ledger that cannot be read or written, or that was changed; nothing was written, unless the text says otherwise."""


class MissingExtraError(LetheError, ImportError):
    """An optional dependency is needed and not installed."""


class LetheWarning(UserWarning):
    """The root of Lethe's warnings about privacy."""


class CallbackWarning(LetheWarning):
    """A callback of training raised an error and is called no more; the training went on."""


class RecordByRecordWarning(LetheWarning):
    """The records of a batch cannot be told apart in a model, which is trained record by record: as exact, and slower."""


class UnusedParameterWarning(LetheWarning):
    """A trained parameter gets noise that is paid for, to no use: no loss depends on it, no step moves it, or no adapter's file has it."""


class BatchShapeWarning(LetheWarning):
    """Batches differ in size or length on a GPU that computes in less than float32: each record then changes how the others are rounded."""


class LargeDeltaWarning(LetheWarning):
    """A delta above 1/(10 records): the chance that something fails for one of the records is not small."""


def quoted(value: object) -> str:
    """`value` as a message shows it; Python writes no whole number of more than some thousand digits."""
    try:
        return repr(value)
    except ValueError:
        return f"{type(value).__name__} of very many digits"


def require_finite(name: str, value: float, *, low: float, strict: bool = False, high: float = float("inf")) -> float:
    """Return a finite number in a range as a float, or raise InputError.

    Args:
        name: what the error calls the value.
        value: the number.
        low, high: the ends of the range, both allowed.
        strict: whether `low` itself is refused.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    ok = low < number if strict else low <= number
    if not (ok and number <= high and number < float("inf")):
        bound = f"{'>' if strict else '>='} {low:g}" + (f" and <= {high:g}" if high < float("inf") else "")
        raise InputError(f"{name} = {quoted(value)}; it needs a finite number {bound}.")
    return number
