"""The page of the planner: controls on one side, answers on the other, computed beside the loop that serves the page.

server.py serves what `make_app` returns (a Shiny app: a page whose parts follow its inputs). Answers take seconds, so threads compute them
and the page stays usable.
"""

import asyncio
import ctypes
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from lethe.documents.strict import parse_document
from lethe.errors import InputError, LetheError
from lethe.run.run import Run
from lethe.studio import parts
from lethe.studio.answers import ALTERNATIVES, NOISE_FACTORS, AlternativePrice, StateAnswer, answer, epsilon_at, price, state_with
from lethe.studio.controls import CONTROLS
from lethe.studio.picture import price_svg
from lethe.studio.state import LONGEST_LINK, State, query_of
from lethe.studio.web import App, HTMLDependency, Inputs, Outputs, Request, Session, reactive, render, ui

_HERE = Path(__file__).parent
_LONGEST_FILE = 1_000_000
# No date is asked for, and the console complains of the script that asks for them: of one name the highest version is taken.
_NO_DATES = HTMLDependency("bootstrap-datepicker", "999")
_FOLDED = (
    ("theorems", "Epsilon by theorem"),
    ("schedule", "Noise schedule"),
    ("prediction", "Predicted risk (no part of the guarantee)"),
    ("documents", "This run as a file, and its certificate"),
)


class WorkerThreads:
    """So many threads of that name, and what waits for them. Unlike the standard pool's, they hold no exit up."""

    def __init__(self, count: int, name: str) -> None:
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        for _ in range(count):
            Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have `work(*arguments)` done; what is cancelled before its turn is never begun."""
        future: Future[Any] = Future()
        self._waiting.put((future, work, arguments))
        return future

    def _work(self) -> None:
        while True:
            future, work, arguments = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work(*arguments))
            except BaseException as error:
                future.set_exception(error)
            del future, work, arguments
            # glibc keeps what was freed for its thread: gigabytes after a few runs of a million steps.
            with suppress(OSError, AttributeError, TypeError):  # another system's library
                ctypes.CDLL(None).malloc_trim(0)


def make_app(first: State) -> App:
    """The planner; a page that is opened without a link shows `first`."""
    # A computation cannot be stopped midway: a few slow ones that nobody waits for any more must not hold up the next.
    workers = {"answers": WorkerThreads(8, "answers"), "prices": WorkerThreads(3, "prices")}

    def page(request: Request) -> Any:
        try:
            state = State.from_query(request.url.query) if request.url.query else first
        except LetheError as error:
            return _whole(ui.tags.main(parts.refusal(str(error)), ui.tags.a("Start afresh", href="/")))
        return _whole(ui.tags.main(ui.div(_questions(state), _answers(), class_="sides")))

    def server(input: Inputs, output: Outputs, session: Session) -> None:
        _serve(input, session, workers)

    return App(page, server)


def _whole(content: Any) -> Any:
    return ui.page_fluid(
        _NO_DATES,
        ui.head_content(
            ui.tags.meta(name="viewport", content="width=device-width, initial-scale=1"),
            ui.tags.link(rel="icon", href="data:,"),
            ui.tags.style((files("lethe.report") / "templates" / "site.css").read_text(encoding="utf-8")),
            ui.tags.style((_HERE / "page.css").read_text(encoding="utf-8")),
            ui.tags.script(ui.HTML((_HERE / "page.js").read_text(encoding="utf-8"))),
        ),
        ui.tags.header(ui.tags.h1("Lethe studio"), ui.tags.p("What every choice of a private training costs."), class_="bar"),
        content,
        title="Lethe studio",
        lang="en",
    )


def _questions(state: State) -> Any:
    opening = ui.div(
        ui.tags.label("Open a run (.yaml or .json)", for_="open"),
        ui.tags.input(type="file", id="open", accept=".yaml,.yml,.json", class_="form-control"),
        ui.tags.p(id="told", class_="small-print", role="status"),
        class_="opening",
    )
    fields = parts.controls(state.texts, opening), ui.output_ui("notes")
    return ui.tags.form(*fields, class_="questions", aria_label="The run", onsubmit="return false")


def _answers() -> Any:
    folded = (
        ui.tags.details(ui.tags.summary(ui.tags.h2(heading)), ui.output_ui(name), class_=f"card-like {name}") for name, heading in _FOLDED
    )
    return ui.div(
        ui.tags.section(ui.div(ui.output_ui("headline"), aria_live="polite"), class_="card-like headline", aria_label="What is certified"),
        ui.tags.section(
            ui.tags.h2("Epsilon against noise"),
            ui.output_ui("picture"),
            ui.output_ui("alternatives"),
            class_="card-like alternatives",
        ),
        *folded,
        class_="answers",
    )


def _attempt(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or in words why there is none; whatever fails, the page lives on."""
    try:
        return work(*arguments)
    except LetheError as error:
        return str(error)
    except Exception as error:
        return f"No number: this is a fault of Lethe's own ({type(error).__name__}: {error}). Please report it with the link of this page."


def _serve(input: Inputs, session: Session, workers: dict[str, WorkerThreads]) -> None:
    error_text: reactive.Value[str] = reactive.Value("")
    priced: reactive.Value[tuple[str, dict[str, AlternativePrice | None]]] = reactive.Value(("", {}))
    drawn_curve: reactive.Value[tuple[str, list[tuple[float, float]]]] = reactive.Value(("", []))

    @reactive.calc
    def query() -> str:
        return query_of({control.name: input[control.name]() for control in CONTROLS})

    async def in_worker(which: str, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.wrap_future(workers[which].submit(_attempt, work, *arguments))

    @reactive.extended_task
    async def answered(requested: str) -> tuple[str, StateAnswer | str]:
        return requested, await in_worker("answers", answer, requested)

    @reactive.extended_task
    async def compared(requested: str) -> None:
        curve = [await in_worker("prices", epsilon_at, requested, factor) for factor in NOISE_FACTORS]
        async with reactive.lock():
            drawn_curve.set((requested, [point for point in curve if not isinstance(point, str)]))
            await reactive.flush()
        prices_by_label: dict[str, AlternativePrice | None] = {}
        for label in ALTERNATIVES:
            result = await in_worker("prices", price, requested, label)
            prices_by_label[label] = AlternativePrice("", None, result) if isinstance(result, str) else result
            async with reactive.lock():
                priced.set((requested, dict(prices_by_label)))
                await reactive.flush()

    @reactive.effect
    async def _ask() -> None:
        requested = query()
        for task in (answered, compared):  # what was asked before is of no use any more
            task.cancel()
        answered.invoke(requested)
        await session.send_custom_message("link", {"query": requested if len(requested) <= LONGEST_LINK else ""})

    def current() -> StateAnswer | str | None:
        """The answer to what the controls say now; None: it is not there yet."""
        if answered.status() != "success":
            return None
        requested, got = answered.value()
        return got if requested == query() else None

    @reactive.effect
    def _compare() -> None:
        if isinstance(current(), StateAnswer):
            with reactive.isolate():
                compared.cancel()
                compared.invoke(query())

    def show(name: str, draw: Callable[[StateAnswer], Any], otherwise: Callable[[str], Any] = parts.nothing) -> None:
        def drawn() -> Any:
            got = current()
            if got is None:
                return parts.waiting()
            return draw(got) if isinstance(got, StateAnswer) else otherwise(got)

        drawn.__name__ = name  # by which Shiny knows where it stands
        session.output(suspend_when_hidden=False)(render.ui(drawn))  # what is folded away is ready when it is opened

    def current_prices() -> dict[str, AlternativePrice | None]:
        requested, prices_by_label = priced()
        return prices_by_label if requested == query() else {}

    def picture(got: StateAnswer) -> Any:
        requested, curve = drawn_curve()
        return ui.HTML(price_svg(got, curve if requested == query() else (), current_prices()))

    show("headline", parts.headline, parts.refusal)
    show("picture", picture)
    show("alternatives", lambda got: parts.prices(current_prices(), noise=got.found_noise))
    for draw in (parts.theorems, parts.schedule, parts.prediction, parts.documents):
        show(draw.__name__, draw)

    @render.ui
    def notes() -> Any:
        long = len(query()) > LONGEST_LINK
        note = ui.tags.p("Too long for a link: save the run instead.", class_="small-print") if long else None
        return ui.TagList(parts.refusal(error_text()) if error_text() else None, note)

    def take(changed: State | str) -> None:
        if isinstance(changed, State):
            parts.update_controls(changed.texts)
        error_text.set("" if isinstance(changed, State) else changed)

    @reactive.effect
    @reactive.event(input.opened)
    async def _open() -> None:
        take(await in_worker("answers", _state_of, input.opened(), query()))

    @reactive.effect
    @reactive.event(input.alternative)
    async def _change() -> None:
        take(await in_worker("answers", state_with, query(), input.alternative()))

    for task in (answered, compared):
        session.on_ended(task.cancel)


def _state_of(file: Any, query: str) -> State:
    """The state that shows the run in a file that was opened; what a run does not say is as in the state with this query."""
    name, text = (file.get("name"), file.get("text")) if isinstance(file, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(text, str):
        raise InputError("opened: it needs the name and the text of a file.", source="the page", remedy="load the page again.")
    if len(text) > _LONGEST_FILE:
        raise InputError(f"{name}: got {len(text)} letters; a run has at most {_LONGEST_FILE}.", source=name)
    return State.of_run(Run.from_document(parse_document(text, name), source=name), State.from_query(query))
