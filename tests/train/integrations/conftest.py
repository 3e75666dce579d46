"""Trainings by other libraries: the warnings that these raise about small data, and one thread for what is compared bit by bit."""

from collections.abc import Iterator

import pytest

QUIET = (
    "ignore:.*(lr_scheduler.step|pin_memory|num_workers|logging interval|Checkpoint directory|fast_dev_run|dataloader_iter|no optimizer"
    "|weights_only|filesystem tracking backend|LeafSpec|gradient_checkpointing|keep_end)"
)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.filterwarnings(QUIET))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
