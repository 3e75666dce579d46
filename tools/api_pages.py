"""The pages of the reference, one for each public module: every name in its `__all__`, from its docstring."""

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

# What people import from, in the order of the menu. `lethe.batches` and the like are names for these modules.
PUBLIC = {
    "lethe": "lethe",
    "lethe.batches": "lethe.run.batches",
    "lethe.losses": "lethe.run.losses",
    "lethe.regularisers": "lethe.run.regularisers",
    "lethe.schedules": "lethe.run.schedules",
    "lethe.noise": "lethe.run.noise",
    "lethe.guarantees": "lethe.calculus.guarantees",
    "lethe.train": "lethe.train",
    "lethe.estimators": "lethe.estimators",
    "lethe.features": "lethe.features",
    "lethe.partitions": "lethe.partitions",
    "lethe.heavy_tailed": "lethe.heavy_tailed",
    "lethe.report": "lethe.report",
    "lethe.ledger": "lethe.ledger",
    "lethe.audit": "lethe.audit",
    "lethe.audit.trainers": "lethe.audit.trainers",
    "lethe.influence": "lethe.influence",
    "lethe.utility": "lethe.utility",
    "lethe.integrations.dp_accounting": "lethe.integrations.dp_accounting",
    "lethe.integrations.logging": "lethe.integrations.logging",
    "lethe.integrations.transformers": "lethe.integrations.transformers",
    "lethe.integrations.lightning": "lethe.integrations.lightning",
    "lethe.integrations.flower": "lethe.integrations.flower",
}

# Classes whose public members stand in several files.
INHERITED = {"Ledger", "PrivacyEngine"}


def public_names(module: ModuleType) -> Iterator[str]:
    """The classes and functions of `__all__`; modules have pages of their own."""
    for name in module.__all__:
        if inspect.isclass(getattr(module, name)) or inspect.isroutine(getattr(module, name)):
            yield name


def api_pages() -> dict[str, str]:
    """The text of each page by its path below docs/, and of the page that lists them."""
    pages, rows = {}, []
    for shown, path in PUBLIC.items():
        module = importlib.import_module(path)
        summary = (inspect.getdoc(module) or "").partition("\n")[0]
        names = list(public_names(module))
        whole = "\n    options:\n      inherited_members: true"
        entries = "\n\n".join(f"::: {path}.{name}{whole if name in INHERITED else ''}" for name in names)
        pages[f"reference/{shown}.md"] = f"# {shown}\n\n{summary}\n\n{entries}\n"
        rows.append(f"| [`{shown}`]({shown}.md) | {summary} | {len(names)} |")
    pages["reference/errors.md"] = "# Errors\n\n::: lethe.errors\n    options:\n      show_root_heading: false\n"
    rows.append("| [errors](errors.md) | The errors Lethe raises on purpose, and what each holds. | |")
    table = "\n".join(["| module | what it is for | names |", "|---|---|---|", *rows])
    pages["reference/index.md"] = (
        "# Reference\n\nEvery public class and function, from its docstring. A name that is on none of these pages is not public and may "
        f"change in any version. The [command](../cli.md) and the [theorems](../theorems.md) have pages of their own.\n\n{table}\n\n"
        "Next: the [fields of a run](../certify.md#the-fields), or back to [the start](../start.md).\n"
    )
    return pages
