"""Journal: the list of steps whose noise may have been drawn, appended to disk before each draw; and the receipt of the ledger's
reservation. A killed training learns from it which noisy gradients count. `Checkpointing` writes the journal, `Paying` the receipt.
"""

import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from lethe.documents.strict import write_bytes
from lethe.errors import InputError, LetheError

try:
    import fcntl
except ImportError:  # Windows has no such locks; training without checkpoints needs none
    fcntl = None

_HEAD = "lethe-journal 1 "
_NAME_BYTES = 16
_RECEIPT = "reservation"


class Journal:
    """An append-only text file, locked while it is open. Reading changes nothing; `start` is the first to write.

    Its lines: `lethe-journal 1 NAME`; `start DIGEST` for every process that trained (`-`: noise from fresh entropy; `seeded`: under a
    seed, or with secret batches from a given generator); `step T` before the noise of step T is drawn; `finished`. Each call that writes
    returns when its line is on disk. A last line that is unfinished counts as the most that it may be the beginning of, since nobody can
    tell whether a power cut tore it or somebody cut it off; the next start completes it. Whole lines that are gone are not noticed.

    Args:
        path: of the file; made if there is none.
        steps: the numbers of the steps that are released one by one, in order; none where only the last iterate is.
    Raises:
        InputError: another process has it open, the file cannot be opened, or is no journal.
    Attributes:
        name: random, the same in the checkpoint that belongs here; "" before the first start.
        starts: how many processes have trained.
        noise_starts: digests of the states that given noise generators began in, and "seeded" if there was a seed; of an unfinished line
            as much as is there.
        step: the last step whose noise may have been drawn; 0: none.
        finished: whether the run came to its end.
    """

    def __init__(self, path: Path, steps: Sequence[int] = ()) -> None:
        self.path, self.name, self.starts, self.step, self.finished = path, "", 0, 0, False
        self.noise_starts: set[str] = set()
        self._descriptor = _locked(path)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        _OPEN.add(self)
        try:
            self._missing = self._read(steps)
        except BaseException:
            self.close()
            raise

    def start(self, noise_start: str | None) -> None:
        """A process begins to train, with noise from a generator whose state has this digest, "seeded", or from fresh entropy."""
        before, self._missing = self._missing, ""
        if not self.name:  # a head that is unfinished stands for nothing: no checkpoint belongs to it
            os.ftruncate(self._descriptor, 0)
            self.name = os.urandom(_NAME_BYTES).hex()
            before = f"{_HEAD}{self.name}\n"
        self._append(f"{before}start {noise_start or '-'}\n")
        to_disk(self.path.parent)
        self.starts += 1
        self.noise_starts |= set() if noise_start is None else {noise_start}

    def release(self, step: int) -> None:
        """The noise of step number `step` is about to be drawn, which an error forbids: from here on it counts as released."""
        if step <= self.step:
            raise LetheError(f"step {step}: it was released before, or may have been; the journal is at step {self.step}.")
        self._append(f"step {step}\n")
        self.step = step

    def finish(self) -> None:
        """The run came to its end, and its model may be released."""
        if not self.finished:
            self._append("finished\n")
            self.finished = True

    def close(self) -> None:
        """Close and unlock it; nothing is written."""
        _OPEN.discard(self)
        self._close()

    def _append(self, lines: str) -> None:
        remaining = lines.encode()
        try:
            while remaining:
                remaining = remaining[os.write(self._descriptor, remaining) :]
            getattr(os, "fdatasync", os.fsync)(self._descriptor)  # macOS has none
        except OSError as error:
            raise LetheError(
                f"{self.path} cannot be written: {error.strerror or error}; training stops before the noise that it was to count.",
                source="checkpoints.folder",
                remedy="make room or mend the disk, and start again: training goes on from the checkpoint.",
            ) from error

    def _read(self, steps: Sequence[int]) -> str:
        """Take in the lines, an unfinished one too; returns what that one lacks, with its newline."""
        with open(self._descriptor, "rb", closefd=False) as file:
            *lines, unfinished = file.read().decode(errors="replace").split("\n")
        for number, line in enumerate(lines, start=1):
            if not self._take(line, first=number == 1):
                raise self._foreign(number, line)
        if not unfinished or (not lines and (_HEAD.startswith(unfinished) or unfinished.startswith(_HEAD))):
            return ""
        following = [f"step {step}" for step in steps if step > self.step][:1]
        possible = ([*following, "finished"] if self.starts else []) + ["start -"] + [unfinished] * unfinished.startswith("start ")
        whole = next((line for line in possible if line.startswith(unfinished)), "")
        if not self._take(whole, first=not lines):
            raise self._foreign(len(lines) + 1, unfinished)
        return f"{whole[len(unfinished) :]}\n"

    def _foreign(self, number: int, line: str) -> InputError:
        return InputError(
            f"{self.path}: line {number} is {line[:40]!r}; that is no line of a journal.",
            source="checkpoints.folder",
            remedy="give another folder. Of a damaged journal nobody can say what was released; begin another run.",
        )

    def _take(self, line: str, *, first: bool) -> bool:
        """Take in one line; False: it does not belong where it stands."""
        if first:
            self.name = line.removeprefix(_HEAD)
            return line.startswith(_HEAD) and len(self.name) == 2 * _NAME_BYTES
        word, _, value = line.partition(" ")
        match word:
            case "start" if value:
                self.starts += 1
                self.noise_starts |= set() if value == "-" else {value}
            case "step" if value.isascii() and value.isdigit() and int(value) > self.step and self.starts:
                self.step = int(value)
            case "finished" if not value and self.starts:
                self.finished = True
            case _:
                return False
        return True


def to_disk(folder: Path) -> None:
    """Have a folder's entries on disk: a file that was made or renamed there outlives a power cut only then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_receipt(folder: Path) -> str | None:
    """What `write_receipt` wrote there; None: nothing, or beside another journal than the one that is there now."""
    try:
        head, _, receipt = (folder / _RECEIPT).read_text(encoding="ascii").rstrip("\n").partition("\n")
        return receipt if head == _first_line(folder) else None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{folder / _RECEIPT} cannot be read: {error}.", source="checkpoints.folder") from error


def write_receipt(folder: Path, receipt: str) -> None:
    """Have on disk what pays for a training, a line of ASCII, bound to the journal that this process has locked: a training that goes on is
    not paid twice, and one that begins anew is paid anew."""
    write_bytes(folder / _RECEIPT, f"{_first_line(folder)}\n{receipt}\n".encode("ascii"))
    os.chmod(folder / _RECEIPT, 0o600)
    to_disk(folder)


def _first_line(folder: Path) -> str:
    """The journal's first line, which identifies it; a receipt repeats it."""
    with open(folder / "journal", encoding="ascii") as file:
        return file.readline().rstrip("\n")


def _locked(path: Path) -> int:
    if fcntl is None:
        raise InputError("checkpoints: this system has no file locks (flock).", remedy="train on Linux or macOS, or without checkpoints.")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise InputError(f"{path} cannot be opened: {error.strerror}.", source="checkpoints.folder") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise InputError(
            f"{path} is locked: another process, or another training in this one, uses the folder.",
            source="checkpoints.folder",
            remedy="wait for it or end it (engine.close()), or give another folder for another run.",
        ) from error
    return descriptor


_OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: a loader's worker that outlives a killed training would otherwise keep its lock."""
    for journal in list(_OPEN):
        journal.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
