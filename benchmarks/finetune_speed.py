"""Fine-tuning privately beside plain fine-tuning: time a step, peak memory and the first step, against the rivals, in one run.

    python benchmarks/finetune_speed.py [--rounds N] [--threads N] [--models GPT-2,LoRA,...] [--engines lethe,...]
        [--all-words | --narrow | --wide | --published] [--records N] [--device cuda] [--bf16] [--json FILE]

The models are those of finetune_models.py, AdamW steps of 16 records, or of --records; with --all-words GPT-2 and its LoRA with a head of
50 257 words, and 4 records; with --wide both and DistilBERT as wide as published; with --published all in their published sizes, for GPUs;
with --narrow 12 narrow layers, which show what a step costs besides arithmetic. Memory fresh from the operating system costs tens of
milliseconds a step, of whichever engine happens to ask for it; where the C library is told to keep what it has, none does (glibc:
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8589934592 in the environment). Time: all engines live in one process and take turns, a step
each; what is shown is the median of their steps' ratios to the plain step of the same round, in wall time and in processor time; so other
work on the machine meets all alike. First: the first step over the median one (processor time; on a GPU wall time), with everything that
a first step does once. Memory: each engine in a process of its own, every allocation counted, see allocated.py; the peak of a step after
the first four, over plain training's, and that of the first four, in which Lethe's self-check looks at batches. On a GPU: the most that
PyTorch's allocator gave, all engines in this process, one after the other. Opacus and DPTrainer (`pip install --no-deps dptrainer`, on
Opacus 1.6) are measured where they are installed, as the model is and, where they refuse that, on an easier one (`Ease`). transformers and
peft are needed; without bitsandbytes QLoRA is left out.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from allocated import peaks
from finetune_engines import ENGINES, Step, Where
from finetune_models import FIRST_STEP_TARGET, MEMORY_TARGETS, MODELS, TIME_TARGETS
from rich.console import Console
from rich.table import Table

WARM, ROUNDS = 4, 12
Found = dict[str, dict[str, Any]]


def _seconds(step: Step, where: Where) -> tuple[float, float]:
    """Of a step: wall time and processor time."""
    wall, processor = where.clock()
    step()
    after = where.clock()
    return after[0] - wall, after[1] - processor


def times(model: str, engines: list[str], rounds: int, where: Where) -> Found:
    """Of each engine the ratios to plain of its steps and its first step's; or why it was refused."""
    found: Found = {}
    steps: dict[str, Step] = {}
    first: dict[str, tuple[float, float]] = {}
    for engine in engines:
        torch.manual_seed(0)
        gc.collect()
        try:
            made = ENGINES[engine](model, where)
            first[engine] = _seconds(made, where)
            for _ in range(WARM - 1):
                made()
            steps[engine] = made
        except Exception as error:  # whatever a rival refuses with
            if engine in ("plain", "lethe"):
                raise
            found[engine] = {"refused": str(error).strip().splitlines()[0]}
    taken: dict[str, list[tuple[float, float]]] = {engine: [] for engine in steps}
    for _ in range(rounds):
        for engine, step in steps.items():
            taken[engine].append(_seconds(step, where))
    for engine, own in taken.items():
        ratios = [
            [one[clock] / other[clock] for one, other in zip(own, taken["plain"], strict=True)]
            for clock in (0, 1)  # the clocks of `_seconds`
        ]
        clock = 0 if where.device == "cuda" else 1
        usual = statistics.median(step[clock] for step in own)
        found[engine] = {
            "milliseconds": 1e3 * statistics.median(wall for wall, _ in own),
            "wall": statistics.median(ratios[0]),
            "cpu": statistics.median(ratios[1]),
            "first": first[engine][clock] / usual,
        }
    return found


def memory_of_gpu(model: str, engine: str, where: Where) -> dict[str, Any]:
    """The peaks of an engine, beyond what the GPU held before it."""
    gc.collect()
    torch.cuda.empty_cache()
    before, told = torch.cuda.memory_allocated(), list[int]()
    try:
        step = ENGINES[engine](model, where)
        for _ in range(WARM + 3):
            torch.cuda.reset_peak_memory_stats()
            step()
            told.append(torch.cuda.max_memory_allocated() - before)
    except Exception as error:  # out of memory, or whatever a rival refuses with
        return {"refused": str(error).strip().splitlines()[0]}
    return {"begin": max(told[:WARM]), "peak": max(told[WARM:])}


def memory(model: str, engine: str, where: Where, threads: int) -> dict[str, Any]:
    """The peaks of an engine in a process of its own."""
    command = [sys.executable, __file__, "--peak", model, engine, "--threads", str(threads), *(["--bf16"] if where.bf16 else [])]
    command += [] if where.records is None else ["--records", str(where.records)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"refused": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return {"begin": max(told[:WARM]), "peak": max(told[WARM:])}


def table_of(model: str, found: Found) -> Table:
    """For people."""
    plain = found["plain"]
    aims = "nothing"
    if model in TIME_TARGETS:
        aims = f"time {TIME_TARGETS[model]}, memory {MEMORY_TARGETS[model]}, first step {FIRST_STEP_TARGET:g}"
    table = Table(title=f"{model}: times plain training (asked of lethe: {aims})", title_justify="left")
    for column in ("engine", "ms a step", "time", "processor time", "first / usual step", "peak MiB", "memory", "memory, first steps"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for engine, one in found.items():
        if "refused" in one:
            table.add_row(engine, f"refused: {one['refused'][:60]}")
            continue
        numbers = [f"{one['milliseconds']:.0f}", *(f"{one[key]:.2f}" for key in ("wall", "cpu")), f"{one['first']:.1f}"]
        if "peak" in one:
            numbers += [f"{one['peak'] / 2**20:.0f}", *(f"{one[key] / plain['peak']:.2f}" for key in ("peak", "begin"))]
        table.add_row(engine, *numbers)
    return table


def main() -> int:
    """Print one table a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", default=",".join(TIME_TARGETS))
    others = parser.add_mutually_exclusive_group()
    for option, of, text in (
        ("--all-words", "all words", "GPT-2 and its LoRA with all words of GPT-2, in the place of --models"),
        ("--narrow", "narrow", "12 layers of GPT-2 and of its LoRA whose arithmetic takes next to no time, in the place of --models"),
        ("--wide", "published width", "GPT-2, its LoRA and DistilBERT as wide as published, of two layers, in the place of --models"),
        ("--published", "published size", "all four in their published sizes, in the place of --models"),
    ):
        others.add_argument(option, dest="of", action="store_const", const=of, help=text)
    parser.add_argument("--records", type=int, help="of a step")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bf16", action="store_true", help="under autocast to bfloat16")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--json", type=Path, help="write the numbers there as well")
    parser.add_argument("--peak", nargs=2, metavar=("MODEL", "ENGINE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    missing = [package for package in ("transformers", "peft") if importlib.util.find_spec(package) is None]
    if missing:
        print(
            f"finetune_speed: {' and '.join(missing)} not found; nothing was measured. Do: pip install {' '.join(missing)}", file=sys.stderr
        )
        return 2
    if asked.device == "cuda" and not torch.cuda.is_available():
        print("finetune_speed: --device cuda, and no GPU that PyTorch can use was found; nothing was measured.", file=sys.stderr)
        return 2
    where = Where(asked.device, asked.bf16, asked.records)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(asked.threads)
    if asked.peak:
        model, engine = asked.peak
        ENGINES[engine](model, where)  # imports what it needs, whose memory is not asked for
        torch.manual_seed(0)
        print(json.dumps(peaks(lambda: ENGINES[engine](model, where), WARM + 3)))
        return 0
    models = [name for name in MODELS if asked.of and asked.of in name] or asked.models.split(",")
    engines = ["plain", *(name for name in asked.engines.split(",") if name != "plain")]
    if importlib.util.find_spec("bitsandbytes") is None:
        models = [name for name in models if "QLoRA" not in name and "8 bits" not in name]
    unknown = [name for name in (*models, *engines) if name not in (*MODELS, *ENGINES)]
    if unknown or asked.rounds < 1 or (asked.records is not None and asked.records < 1):
        known = f"models {', '.join(MODELS)}; engines {', '.join(ENGINES)}; rounds and records of 1 or more"
        print(
            f"finetune_speed: got {', '.join(unknown) or f'{asked.rounds} rounds, {asked.records} records'}; it knows {known}.",
            file=sys.stderr,
        )
        return 2
    if importlib.util.find_spec("opacus") is None:
        engines = [name for name in engines if not name.startswith("opacus")]
    if importlib.util.find_spec("dptrainer") is None:
        engines = [name for name in engines if not name.startswith("dptrainer")]
    told: dict[str, Found] = {}
    for model in models:
        found = told[model] = times(model, engines, asked.rounds, where)
        for engine in engines:
            if "refused" not in found[engine]:
                on_gpu = asked.device == "cuda"
                found[engine] |= memory_of_gpu(model, engine, where) if on_gpu else memory(model, engine, where, asked.threads)
        Console(width=140).print(table_of(model, found))
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
