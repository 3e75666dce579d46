"""Whether two versions certify and plan the same: `record` writes what this one says of random runs, `compare` reads two such files.

python tests/laws/fuzz/compare_certificates.py record before.json --runs 2000     # in the checkout of before
python tests/laws/fuzz/compare_certificates.py record after.json --runs 2000      # in this one
python tests/laws/fuzz/compare_certificates.py compare before.json after.json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from random_documents import ordinary_document

import lethe
from lethe.errors import LetheError

DELTA = 1e-6
TOLERANCE = 1e-6
PLANNED_EVERY = 10
"""Planning certifies a few dozen times: one run in so many is planned as well."""


def answer(seed: int) -> dict[str, Any]:
    """The run of `seed`, its epsilon and theorem, and now and then the noise that epsilon = 1 takes."""
    document = ordinary_document(seed)
    said: dict[str, Any] = {"seed": seed, "run": document}
    try:
        run = lethe.Run.from_document(document)
        certificate = lethe.certify(run, DELTA)
        said |= {"epsilon": str(certificate.epsilon), "theorem": certificate.theorem}
        if seed % PLANNED_EVERY == 0 and math.isfinite(certificate.epsilon):
            scaled = lethe.plan(run, epsilon=certificate.epsilon / 2, delta=DELTA)
            said["planned"] = str(scaled.noise_multipliers.max())
    except LetheError as error:
        said["refused"] = str(error).splitlines()[0]
    return said


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> int:
    """Print each run whose number differs, and count: how many got a larger epsilon."""
    counts: Counter[str] = Counter()
    for old, new in zip(before, after, strict=True):
        if old["run"] != new["run"]:
            raise SystemExit(f"seed {old['seed']}: the two files are of different runs.")
        kind = _difference(old, new)
        counts[kind] += 1
        if kind not in ("same", "refused by both"):
            print(kind, old["seed"], {key: (old.get(key), new.get(key)) for key in ("epsilon", "theorem", "planned", "refused")})
            print("   ", json.dumps(old["run"]))
    print(dict(counts))
    return counts["larger"] + counts["refused now"]


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    if "epsilon" not in old or "epsilon" not in new:
        return "refused by both" if "epsilon" not in old and "epsilon" not in new else "refused now" if "epsilon" in old else "answered now"
    one, other = float(old["epsilon"]), float(new["epsilon"])
    if other > one * (1 + TOLERANCE):
        return "larger"
    if other < one * (1 - TOLERANCE):
        return "smaller"
    planned, again = float(old.get("planned", 0)), float(new.get("planned", 0))
    return "same" if math.isclose(planned, again, rel_tol=TOLERANCE) else "planned differently"


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--runs", type=int, default=2000)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "record":
        arguments.file.write_text(json.dumps([answer(seed) for seed in range(arguments.runs)]))
        return 0
    return compare(json.loads(arguments.before.read_text()), json.loads(arguments.after.read_text()))


if __name__ == "__main__":
    sys.exit(main())
