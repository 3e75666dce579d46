"""The tables and the picture of the page "How good can a private model be", and README's table, from the file of results."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from matplotlib.figure import Figure
from private_linear_summary import Cells, behind, cell, half_width
from resumable import read_lines
from utility_records_data import DATASETS
from utility_records_methods import AUTO, METHODS, OPACUS, PLAIN, POISSON, TUNED, WHITENED
from utility_records_summary import MEMORY, TUNING_SEED, Rows, best_settings, cells_of, passes_of, screened_rows, standing

RESULTS = Path(__file__).with_name("results") / "utility_records.jsonl"
ABLATION = Path(__file__).with_name("results") / "utility_ablation.jsonl"
EPSILONS = (0.5, 1.0, 3.0)
_HEAD = "| | seeds | " + " | ".join(rf"$\varepsilon = {epsilon:g}$" for epsilon in EPSILONS) + " |\n|---|---|" + "---|" * len(EPSILONS)


def results() -> Rows:
    """All rows."""
    return read_lines(RESULTS)


def tables() -> str:
    """One for each data set: a row a method, mean and 95 % interval of the accuracy, and the passes."""
    rows = results()
    cells, pages = cells_of(rows), []
    for name, known in DATASETS.items():
        lines = [line for method in METHODS if (line := _line(rows, cells, name, method))]
        if lines:
            pages.append(f"**{known.what}**\n\n{_HEAD}\n" + "\n".join(lines))
    return "\n\n".join(pages)


def readme_table() -> str:
    """At epsilon 1 what `auto` reached, and a tuned rival on the better of its two kinds of rows: short."""
    cells = cells_of(results())
    lines = ["| accuracy | Lethe `auto` | DP-SGD, tuned | not private |", "|---|---|---|---|"]
    for name, known in DATASETS.items():
        if ours := cells.get((name, 1.0, AUTO)):
            rivals = [_mean(cells.get((name, 1.0, method), {})) for method in (POISSON, WHITENED)]
            shown = (_mean(ours), max(rivals), _mean(cells.get((name, 0.0, PLAIN), {})))
            lines.append(f"| {known.what.rsplit(', ', 1)[0].replace(' x ', '×')} | {' | '.join(shown)} |")
    return "\n".join(lines)


def standings() -> str:
    """How `auto` stands to each rival, and the places where it is behind by more than noise."""
    rows = results()
    cells = cells_of(rows)
    lines = [f"- `auto` against {method}: {standing(rows, method)}." for method in TUNED]
    for (dataset, epsilon, method), scores in sorted(cells.items()):
        if method in (POISSON, WHITENED, OPACUS) and (dataset, epsilon, AUTO) in cells:
            gap, noise = behind(cells[dataset, epsilon, AUTO], scores)
            if gap > noise:
                by = f"{gap:.4f} ± {noise:.4f}" if noise else f"{gap:.4f}, one seed"
                lines.append(f"- Behind: {DATASETS[dataset].what.rsplit(', ', 1)[0]} at {epsilon:g}, by {by}, {method}.")
    return "\n".join(lines)


def gaps(rival: str = POISSON) -> str:
    """By how much `auto` is above a tuned rival, seed by seed, with the passes of both."""
    rows = results()
    cells, lines = cells_of(rows), [_HEAD.replace("| seeds ", "").replace("---|", "", 1)]
    for name, known in DATASETS.items():
        found = []
        for epsilon in EPSILONS:
            ours, theirs = (cells.get((name, epsilon, method), {}) for method in (AUTO, rival))
            if ours.keys() & theirs.keys():
                gap, noise = behind(theirs, ours)
                passes = " and ".join(str(passes_of(rows, name, epsilon, method)) for method in (AUTO, rival))
                found.append((f"{gap:+.4f} ± {noise:.4f}" if noise else f"{gap:+.4f}, one seed") + f" ({passes})")
            else:
                found.append("-")
        if set(found) != {"-"}:
            lines.append(f"| {known.what.rsplit(', ', 1)[0]} | {' | '.join(found)} |")
    return "\n".join(lines)


def features_of_rival() -> str:
    """The best that was screened of DP-SGD on images: by features, batches, momentum, and with a mean of iterates."""
    head = r"| | $\varepsilon$ | features | batches a pass | momentum | last iterate | mean of the last half |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for name, known in DATASETS.items():
        for epsilon in EPSILONS:
            rows = screened_rows(name, epsilon)
            kinds = sorted({(row["features"] == "plain", row["momentum"], row["batches"]) for row in rows})
            for plain, momentum, batches in kinds:
                these = [r for r in rows if (r["features"] == "plain", r["momentum"], r["batches"]) == (plain, momentum, batches)]
                features = "as they come" if plain else "whitened"
                best = [f"{max(row[key] for row in these):.4f}" for key in ("score", "averaged")]
                cells = [known.what.rsplit(", ", 1)[0], f"{epsilon:g}", features, str(batches), f"{momentum:g}", *best]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def tuning() -> str:
    """The place of the grid that was best, for every tuned method."""
    rows = results()
    lines = ["| | rows | passes of batches, clip norm, step size x clip norm: best of the grid | places tried |", "|---|---|---|---|"]
    for method, features in ((POISSON, "plain"), (WHITENED, "whitened")):
        for name, known in DATASETS.items():
            for epsilon in EPSILONS:
                best = best_settings(rows, name, epsilon, method)
                if best is not None:
                    tried = _places_tried(rows, name, epsilon, method) or sum(
                        row["features"] == features for row in screened_rows(name, epsilon)
                    )
                    text = "{} of {}, {:g}, {:g}".format(*best)
                    where = rf"{known.what.rsplit(', ', 1)[0]}, $\varepsilon = {epsilon:g}$"
                    lines.append(f"| {where} | {'as they come' if features == 'plain' else features} | {text} | {tried} |")
    return "\n".join(lines)


def _places_tried(rows: Rows, dataset: str, epsilon: float, method: str) -> int:
    """Places of a grid that was trained on all records."""
    tried = [
        row for row in rows if row["seed"] >= TUNING_SEED and (row["dataset"], row["epsilon"], row["method"]) == (dataset, epsilon, method)
    ]
    return len({tuple(row["settings"]) for row in tried})


def chosen() -> str:
    """What `auto` took, for every set and epsilon, and the processor's seconds of a fit."""
    rows, lines = results(), [r"| | $\varepsilon$ | what `auto` took | seconds of a processor |", "|---|---|---|---|"]
    for name, known in DATASETS.items():
        for epsilon in EPSILONS:
            found = [r for r in rows if (r["dataset"], r["epsilon"], r["method"]) == (name, epsilon, AUTO)]
            if found:
                took = ", ".join(sorted({re.sub(r"(pass_ends|joint): ", r"`\1`, ", row["chosen"]) for row in found}))
                seconds = statistics.median(row["seconds"] for row in found)
                lines.append(f"| {known.what.rsplit(', ', 1)[0]} | {epsilon:g} | {took} | {seconds:.1f} |")
    return "\n".join(lines)


def memory() -> str:
    """What a fit of `auto` holds at its peak beside the rows that it was given."""
    lines = ["| | MiB of the rows | MiB held beside them at the peak |", "|---|---|---|"]
    measured = {row["dataset"]: row for row in read_lines(MEMORY)}
    for name, known in DATASETS.items():
        if name in measured:
            lines.append(f"| {known.what.rsplit(', ', 1)[0]} | {measured[name]['rows']:.0f} | {measured[name]['beside']:.0f} |")
    return "\n".join(lines)


def figure() -> Figure:
    """Accuracy against epsilon, a panel a data set; bars are 95 % intervals."""
    cells = cells_of(results())
    names = [name for name in DATASETS if any(key[0] == name and key[2] == AUTO for key in cells)]
    drawn, across = Figure(figsize=(10.0, 3.0 * -(-len(names) // 3)), layout="constrained"), 3
    for place, name in enumerate(names):
        axes = drawn.add_subplot(-(-len(names) // across), across, place + 1)
        for method, colour, mark in ((AUTO, "black", "o"), (POISSON, "C0", "s"), (WHITENED, "C2", "D"), (OPACUS, "C1", "^")):
            line = [(epsilon, cells[name, epsilon, method]) for epsilon in EPSILONS if (name, epsilon, method) in cells]
            if line:
                heights = [statistics.fmean(scores.values()) for _, scores in line]
                halves = [half_width(list(scores.values())) for _, scores in line]
                where = [epsilon for epsilon, _ in line]
                axes.errorbar(where, heights, yerr=halves, marker=mark, color=colour, capsize=2, label=method)
        if plain := cells.get((name, 0.0, PLAIN)):
            axes.axhline(statistics.fmean(plain.values()), color="0.5", linestyle=":", label=PLAIN)
        axes.set(xscale="log", xticks=EPSILONS, xticklabels=[f"{epsilon:g}" for epsilon in EPSILONS], xlabel="epsilon")
        axes.minorticks_off()
        axes.set_title(DATASETS[name].what.rsplit(", ", 1)[0], fontsize=9)
        if place == 0:
            axes.legend(fontsize=7)
    return drawn


def _line(rows: Rows, cells: Cells, name: str, method: str) -> str:
    found = [cells.get((name, 0.0 if method == PLAIN else epsilon, method), {}) for epsilon in EPSILONS]
    if not any(found):
        return ""
    seeds = sorted({len(scores) for scores in found if scores})
    shown = [_with_passes(cell(scores, 4), passes_of(rows, name, epsilon, method)) for epsilon, scores in zip(EPSILONS, found, strict=True)]
    return f"| {method} | {' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} | {' | '.join(shown)} |"


def _with_passes(text: str, passes: int | None) -> str:
    return text if passes is None or text == "-" else f"{text} ({passes})"


def _mean(scores: dict[int, float]) -> str:
    return f"{statistics.fmean(scores.values()):.3f}".lstrip("0") if scores else "-"


# Set, method, epsilon, accuracy, source. Rows without a word on it were tuned on the test records, as far as the sources say.
PUBLISHED = (
    ("MNIST", "scattering, linear (Tramèr & Boneh 2021, arXiv:2011.11660, table in their repository)", "3", ".987"),
    ("MNIST", "convolutional network, end to end (the same table)", "3", ".981"),
    ("Fashion-MNIST", "scattering, linear (the same table)", "3", ".897"),
    ("Fashion-MNIST", "convolutional network, end to end (the same table)", "3", ".860"),
    ("CIFAR-10", "scattering, linear (the same table)", "3", ".670"),
    ("CIFAR-10", "scattering, convolutional network (the same table)", "3", ".693"),
    ("CIFAR-10", "tempered sigmoids (Papernot et al. 2020, arXiv:2007.14191, as Tramèr & Boneh cite it)", "7.53", ".662"),
    ("CIFAR-10", "Wide-ResNet-40, augmented (De et al. 2022, arXiv:2204.13650, abstract)", "8", ".814"),
)


def published() -> str:
    """Figures of others beside those of `auto` on scattering features."""
    cells = cells_of(results())
    lines = [r"| set | model | $\varepsilon$ | accuracy |", "|---|---|---|---|"]
    for what, name in (("MNIST", "mnist_scattering"), ("Fashion-MNIST", "fashion_scattering"), ("CIFAR-10, 20 000", "cifar_scattering")):
        for epsilon in EPSILONS:
            scores = cells.get((name, epsilon, AUTO), {})
            if scores:
                seeds = "one seed" if len(scores) == 1 else f"{len(scores)} seeds"
                lines.append(f"| {what} | **scattering, whitened, linear, by the rule** ({seeds}) | {epsilon:g} | **{cell(scores, 4)}** |")
        lines += [
            f"| {one} | {model} | {epsilon} | {accuracy} |" for one, model, epsilon, accuracy in PUBLISHED if one == what.split(", ")[0]
        ]
    return "\n".join(lines)


def ablation() -> str:
    """What is lost where one part is left out."""
    rows = read_lines(ABLATION)
    if not rows:
        return "Not run yet: `python benchmarks/utility_ablation.py`."
    lines = ["| left out | accuracy | less than all parts |", "|---|---|---|"]
    scores = {
        name: {row["seed"]: row["score"] for row in rows if row["part"] == name} for name in dict.fromkeys(row["part"] for row in rows)
    }
    for name, found in scores.items():
        gap, noise = behind(found, scores["nothing"])
        lines.append(f"| {name} | {cell(found, 4)} | {'' if name == 'nothing' else f'{gap:.4f}' + (f' ± {noise:.4f}' if noise else '')} |")
    return "\n".join(lines)
