"""The path of a new user, timed: the wheel in an empty environment, the code of the start page, a report, an audit. `make new-user`.

Fails if a step fails, or if all of it takes more than ten minutes.
"""

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
MOST_SECONDS = 600.0
RUN = """\
records: 60000
batches: {design: cyclic, size: 600}
passes: 20
step_size: 0.5
noise_multiplier: 10
loss: {kind: softmax_regression, feature_norm: 1}
release: last
neighbours: replace_one
"""
AUDIT = "{subject: {kind: train, config: train.yaml}, runs: 100}\n"


def start_page() -> str:
    """The code that the start page shows, in its order."""
    return "\n".join(re.findall(r"```python[^\n]*\n(.*?)```", (ROOT / "docs" / "start.md").read_text(), flags=re.S))


def steps(folder: Path) -> dict[str, Callable[[], object]]:
    """What a new user does, by name; each works in `folder`, and sees nothing of the checkout but the wheel."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    bin_folder = folder / "venv" / "bin"

    def do(*words: object) -> object:
        return subprocess.run([str(word) for word in words], cwd=folder, env=environment, check=True, capture_output=True, text=True)

    def build() -> object:
        return do(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)

    def install() -> object:
        venv.create(folder / "venv", with_pip=True)
        (wheel,) = folder.glob("lethe_dp-*.whl")
        return do(bin_folder / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[all]")

    def run_start_page() -> object:
        (folder / "start.py").write_text(start_page())
        return do(bin_folder / "python", "start.py")

    def report() -> object:
        (folder / "run.yaml").write_text(RUN)
        do(bin_folder / "lethe", "report", "run.yaml", "--delta", "1e-6", "-o", "report.html")
        return (folder / "report.html").stat().st_size

    def audit() -> object:
        (folder / "train.yaml").write_text((ROOT / "examples" / "train_digits.yaml").read_text())
        (folder / "audit.yaml").write_text(AUDIT)
        return do(bin_folder / "lethe", "audit", "audit.yaml")

    return {
        "build the wheel": build,
        "install it in an empty environment": install,
        "the code of the start page": run_start_page,
        "a report of a run": report,
        "an audit with 200 trainings": audit,
    }


def main() -> None:
    """Walk it, and print how long each step took."""
    table = Table("step", "seconds", title="The path of a new user")
    total = 0.0
    with TemporaryDirectory() as folder:
        for name, step in steps(Path(folder)).items():
            begun = time.perf_counter()
            try:
                step()
            except subprocess.CalledProcessError as error:
                raise SystemExit(f"{name}: exit status {error.returncode}\n{error.stdout}\n{error.stderr}") from None
            seconds = time.perf_counter() - begun
            total += seconds
            table.add_row(name, f"{seconds:.0f}")
    table.add_row("all", f"{total:.0f}")
    Console().print(table)
    if total > MOST_SECONDS:
        raise SystemExit(f"{total:.0f} seconds are more than {MOST_SECONDS:.0f}.")


if __name__ == "__main__":
    main()
