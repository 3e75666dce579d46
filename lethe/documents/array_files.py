"""Reading of NumPy files; a damaged file gives one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe.errors import InputError, LetheError


@contextmanager
def reading_arrays(file: Path, *, what: str, remedy: str) -> Iterator[None]:
    """Within: whatever NumPy raises of this file is an InputError.

    A header is parsed as Python text and believed, so damage shows as many kinds of error: syntax and tokens, memory for a shape of 10^12
    rows, unknown compression, a check sum that is wrong.

    Args:
        file: the file that is read.
        what: what cannot be done, such as "be read".
        remedy: what to give instead.
    Raises:
        InputError: NumPy cannot read it.
    """
    try:
        yield
    except LetheError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(f"{file} cannot {what}: {reason}.", remedy=remedy) from error
