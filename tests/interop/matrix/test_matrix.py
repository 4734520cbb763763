"""Every client with every broker, cell by cell."""

from collections.abc import Iterator

import pytest

from tests.interop.apache import Unobtainable
from tests.interop.bench import Bench
from tests.interop.matrix import brokers
from tests.interop.matrix.cells import CELLS, KNOWN
from tests.interop.matrix.players import CLIENTS, Absent, Players


@pytest.fixture(scope="module", params=brokers.BROKERS)
def stage(
    request: pytest.FixtureRequest,
    java_module_bench: Bench,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Players]:
    """The broker of the parameter, and all clients that are wanted with it at work."""
    broker: str = request.param
    aged = [cell.topic(client) for client in CLIENTS for cell in CELLS.values() if cell.aged]
    directory = tmp_path_factory.mktemp(f"matrix-{broker}")
    with (
        brokers.cluster(broker, directory, java_module_bench, aged=aged) as cluster,
        Players(cluster, java_module_bench) as playing,
    ):
        for client, cells in _wanted(request.session, broker).items():
            playing.begin(client, [CELLS[cell] for cell in cells])
        yield playing


def _wanted(session: pytest.Session, broker: str) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for item in session.items:
        if isinstance(item, pytest.Function) and item.originalname == TEST:
            given = item.callspec.params
            if given["stage"] == broker:
                wanted.setdefault(str(given["client"]), []).append(str(given["cell"]))
    return wanted


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_client_gets_on_with_the_broker(
    request: pytest.FixtureRequest, stage: Players, client: str, cell: str
) -> None:
    if reason := KNOWN.get((stage.broker, client, cell)):
        request.applymarker(pytest.mark.xfail(reason=reason))
    try:
        seen = stage.seen(client, CELLS[cell])
    except (Absent, Unobtainable) as absent:
        pytest.skip(str(absent))
    CELLS[cell].check(seen)


TEST = test_the_client_gets_on_with_the_broker.__name__
