"""All architectures of the zoo, and what docs/architectures.md and docs/train.md say of them."""

from zoo_member import ALONE, VMAP
from zoo_own import OWN
from zoo_pictures import PICTURES
from zoo_text import ADAPTERS, TEXT

GROUPS = {"Plain PyTorch": OWN, "Language models": TEXT, "Pictures and sound": PICTURES, "Adapters (peft)": ADAPTERS}
ZOO = {name: member for members in GROUPS.values() for name, member in members.items()}
WAYS = ("fast", VMAP, ALONE, "refused")


def table() -> str:
    """By kind and way, the architectures, with the reason of those that are not fast."""
    rows = []
    for kind, members in GROUPS.items():
        for how in WAYS:
            names = [f"{name} ({member.why})" if member.why else name for name, member in members.items() if member.how == how]
            rows += [f"| {kind} | {how} | {'; '.join(names)} |"] if names else []
    return "\n".join(["| kind | how | architectures |", "|---|---|---|", *rows, ""])


def summary() -> str:
    """How many architectures train in which way, in a sentence."""
    fast, vmap, alone, refused = (sum(member.how == how for member in ZOO.values()) for how in WAYS)
    return (
        f"Of {len(ZOO)} tested architectures {fast} train in one backward pass a batch, {vmap} under `torch.func.vmap`, "
        f"{alone} record by record; {refused} are refused.\n"
    )
