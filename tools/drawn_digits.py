"""The picture of the recipe of diffusion: digits that its small size draws, private and not, below real ones.

    python tools/drawn_digits.py

Writes docs/pictures/recipes/diffusion.png, and prints what the recipe prints.
"""

import runpy
import sys

import numpy as np
from matplotlib.figure import Figure
from recipe_picture import FOLDER, ROOT


def main() -> None:
    """Train twice, and draw."""
    sys.path.insert(0, str(FOLDER))
    rows: dict[str, np.ndarray] = {}
    for name, epsilon in (("epsilon = 10", "10"), ("not private", "inf")):
        sys.argv = ["diffusion.py", "--size", "small", "--epsilon", epsilon]
        names = runpy.run_path(str(FOLDER / "diffusion.py"), run_name="__main__")
        rows[name] = names["drawn"][:20].numpy()
    labels = names["test"][1].tolist()
    rows = {"real": names["test"][0].numpy()[[labels.index(i % 10, 40 * (i // 10)) for i in range(20)]], **rows}
    figure = Figure(figsize=(8, 1.7))
    for axes, (name, pictures) in zip(figure.subplots(3, 1), rows.items(), strict=True):
        axes.imshow(np.concatenate([picture.reshape(8, 8) for picture in pictures], 1), cmap="gray_r")
        axes.set_yticks([3.5], [name])
        axes.set_xticks([])
    path = ROOT / "docs" / "pictures" / "recipes" / "diffusion.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, bbox_inches="tight", dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
