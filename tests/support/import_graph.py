"""How many rooms lethe has and how many arrows of imports between them: `python tests/support/import_graph.py` prints both, and each arrow.

A room is a file or a folder directly under `lethe/`. An arrow goes from a room to another one from which any of its files imports.
"""

from collections import Counter

import grimp


def room_of(module: str) -> str:
    """The part of a module's name after `lethe.`; `lethe` itself counts as `__init__`."""
    return (*module.split("."), "__init__")[1]


def arrows() -> Counter[tuple[str, str]]:
    """(importing room, imported room) -> how many imports of files."""
    graph = grimp.build_graph("lethe")
    imports = ((module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module))
    return Counter((room_of(one), room_of(other)) for one, other in imports if room_of(one) != room_of(other))


def rooms() -> set[str]:
    """The names of all rooms."""
    return {room_of(module) for module in grimp.build_graph("lethe").modules}


if __name__ == "__main__":
    found = arrows()
    for (one, other), imports in sorted(found.items()):
        print(f"{one} -> {other}: {imports}")
    print(f"{len(rooms())} rooms, {len(found)} arrows")
