"""Pictures in pages of the documentation: drawn while the page is built, part of it, with a text for those who do not see them."""

import shlex
import subprocess
import sys
from base64 import b64encode
from html import escape
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure


def picture(figure: Figure, text: str) -> str:
    """`figure` as HTML for a page to print; `text` says in words what it shows, and stands below it."""
    drawn = BytesIO()
    figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
    return _embedded(drawn.getvalue(), "svg+xml", text)


def drawn_by(command: str, file: str, text: str, **written: str) -> str:
    """The picture that a command writes to `file`, in a folder of its own that holds `examples` and what is to be written there first."""
    with TemporaryDirectory() as folder:
        Path(folder, "examples").symlink_to(Path("examples").resolve())
        for name, content in written.items():
            Path(folder, f"{name}.yaml").write_text(content)
        subprocess.run([sys.executable, "-m", *shlex.split(command)], cwd=folder, check=True, capture_output=True)
        return _embedded(Path(folder, file).read_bytes(), "png", text)


def _embedded(data: bytes, kind: str, text: str) -> str:
    source = f"data:image/{kind};base64,{b64encode(data).decode()}"
    return f'<figure><img alt="{escape(text)}" src="{source}"><figcaption>{escape(text)}</figcaption></figure>'
