"""Pictures in pages of the documentation: drawn while the page is built, part of it, with a text for those who do not see them."""

from html import escape
from io import StringIO

from matplotlib import pyplot
from matplotlib.figure import Figure


def show(figure: Figure, text: str) -> None:
    """Print `figure` as SVG for the page; `text` says in words what it shows, and stands below it."""
    drawn = StringIO()
    figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    _, _, picture = drawn.getvalue().partition("<svg")
    print(f'<figure markdown="0"><svg role="img" aria-label="{escape(text)}"{picture}<figcaption>{escape(text)}</figcaption></figure>')
