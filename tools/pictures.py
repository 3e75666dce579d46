"""Pictures in pages of the documentation: drawn while the page is built, part of it, with a text for those who do not see them."""

from base64 import b64encode
from html import escape
from io import BytesIO

from matplotlib.figure import Figure


def picture(figure: Figure, text: str) -> str:
    """`figure` as HTML for a page to print; `text` says in words what it shows, and stands below it."""
    drawn = BytesIO()
    figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
    data = b64encode(drawn.getvalue()).decode()
    return f'<figure><img alt="{escape(text)}" src="data:image/svg+xml;base64,{data}"><figcaption>{escape(text)}</figcaption></figure>'
