"""A page as a strict reader sees it: every element closed, every attribute known, every address that it would ask for."""

from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "img", "hr", "input"}
_ASKING = {"src", "href", "srcset", "data", "poster", "action", "background", "xlink:href", "formaction", "manifest", "ping"}


class Read(HTMLParser):
    """What a page holds.

    Attributes: `tags` (all names), `asked` (what addresses stand in attributes), `handlers` (attributes that would run scripts), `words`
    (what is to be read, without styles), `styles` (texts of style elements and attributes), `starts` ((tag, attributes) in order).
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.asked: list[str] = []
        self.handlers: list[str] = []
        self.styles: list[str] = []
        self.starts: list[tuple[str, dict[str, str | None]]] = []
        self._words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], self.open

    @property
    def words(self) -> str:
        return " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.starts.append((tag, dict(attrs)))
        for name, value in attrs:
            if name in _ASKING:
                self.asked.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
            if name == "style" or "url(" in (value or ""):
                self.styles.append(value or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        (self.styles if self.open and self.open[-1] == "style" else self._words).append(data)
