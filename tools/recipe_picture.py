"""The picture of a recipe's page: the score of its small size against epsilon, beside the same without privacy.

    python tools/recipe_picture.py NAME SCORE [--epsilon 1 3 8] [--runs 2]

Writes docs/pictures/recipes/NAME.svg; `SCORE` is one of those that the recipe prints. One dot a training.
"""

import argparse
import json
import math
import runpy
import statistics
import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "recipes"


def score_of(recipe: str, score: str, epsilon: float) -> float:
    """Of a training at the small size."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.json")
        sys.argv = [recipe, "--size", "small", "--epsilon", str(epsilon), "--json", str(results)]
        runpy.run_path(str(FOLDER / f"{recipe}.py"), run_name="__main__")
        return json.loads(results.read_text())[score]


def main() -> None:
    """Train, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("score")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    sys.path.insert(0, str(FOLDER))
    scores = {
        epsilon: [score_of(options.recipe, options.score, epsilon) for _ in range(options.runs)] for epsilon in sorted(options.epsilon)
    }
    plain = score_of(options.recipe, options.score, math.inf)
    figure = Figure(figsize=(6, 3.2))
    axes = figure.subplots()
    axes.axhline(plain, color="C2", linestyle="--", label="without privacy")
    axes.semilogx(list(scores), [statistics.mean(runs) for runs in scores.values()], color="C0", label="private, mean of runs")
    for epsilon, runs in scores.items():
        axes.plot([epsilon] * len(runs), runs, "o", color="C0")
    axes.set(xlabel="epsilon", ylabel=options.score, xticks=list(scores), xticklabels=[f"{epsilon:g}" for epsilon in scores])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.3)
    path = ROOT / "docs" / "pictures" / "recipes" / f"{options.recipe}.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None})
    print(*(f"{epsilon:g}: {statistics.mean(runs):.4g} {[round(run, 4) for run in runs]}" for epsilon, runs in scores.items()), sep="\n")
    print(f"without privacy: {plain:.4g}")


if __name__ == "__main__":
    main()
