"""The guard against regressions: its verdicts and its reference."""

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.smoke import __main__ as guard
from benchmarks.smoke import reference
from benchmarks.smoke.cells import Bench, Server
from benchmarks.smoke.verdict import Record, Stored, at_least, of_runs, row, worse

CALM = Stored(ratio=2.0, spread=0.03)


def around(middle: float, part: float, count: int = 9) -> list[float]:
    """Rounds evenly spread around a median, up to a fraction of it away."""
    steps = [2 * each / (count - 1) - 1 for each in range(count)]
    return [middle * (1 + part * step) for step in steps]


def record(**cells: Stored) -> Record:
    return Record("some machine", guard.KERNEL, cells)


def test_a_ratio_has_the_median_and_the_spread_of_its_runs() -> None:
    assert of_runs([1.9, 2.1, 2.0]) == Stored(2.0, 0.1)


@pytest.mark.parametrize(("spread", "margin"), [(0.0, 0.15), (0.18, 0.18), (0.9, 0.2)])
def test_the_margin_follows_the_spread_within_bounds(spread: float, margin: float) -> None:
    stored = Stored(10.0, spread)
    assert stored.margin == margin
    assert stored.limit == pytest.approx(10 * (1 + margin))


@pytest.mark.parametrize(("count", "rank"), [(3, 1), (6, 1), (9, 2), (18, 5)])
def test_the_lower_bound_of_the_median_is_an_order_statistic(count: int, rank: int) -> None:
    assert at_least(range(1, count + 1)) == rank


@pytest.mark.parametrize("part", [0.02, 0.1])
def test_a_regression_by_a_third_is_found_in_calm_and_in_noisy_rounds(part: float) -> None:
    assert worse({"cell": CALM}, {"cell": around(2.0 * 1.33, part)}) == ["cell"]


@pytest.mark.parametrize("measured", [around(2.0, 0.3), around(2.25, 0.02), around(2.5, 0.3)])
def test_noise_is_no_regression(measured: list[float]) -> None:
    assert worse({"cell": CALM}, {"cell": measured}) == []


def test_an_improvement_asks_to_be_stored() -> None:
    assert row("cell", CALM, around(1.5, 0.02)).endswith("better: store it")
    assert row("cell", CALM, around(2.0, 0.02)).endswith("ok")


def test_stored_ratios_round_trip(tmp_path: Path) -> None:
    written = record(a=CALM, b=Stored(3.0, 0.2))
    written.write(tmp_path / "ratios.json")
    assert Record.read(tmp_path / "ratios.json") == written


def test_a_regression_is_reported_with_both_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    measured = {"good": around(2.0, 0.02), "bad": around(3.0, 0.02)}
    assert guard._report(record(good=CALM, bad=CALM), measured) == 1
    printed = capsys.readouterr()
    assert printed.err == "bad: the ratio was 2.00 and is 3.00, past the limit of 2.30\n"
    assert "some machine" in printed.out
    assert guard._report(record(good=CALM), {"good": around(2.0, 0.02)}) == 0


def test_stored_ratios_and_cells_have_the_same_names() -> None:
    servers = Server(0, 0), Server(0, 0)
    assert list(Record.read().cells) == Bench(*servers, name_server="", slow=0.0).cells


class Written(asyncio.Transport):
    """A transport that records written bytes."""

    data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data


def request(code: int, opaque: int) -> bytes:
    header = b'{"code":%d,"extFields":{"b":"t"},"flag":0,"opaque":%d,"version":1}' % (code, opaque)
    return struct.pack(">II", 4 + len(header), len(header)) + header


def responses(chunks: Sequence[bytes]) -> list[bytes]:
    """The response frames of the reference to a request stream in chunks."""
    server, transport = reference.Answering(), Written()
    server.connection_made(transport)
    for chunk in chunks:
        server.data_received(chunk)
    found, rest = [], transport.data
    while rest:
        size = 4 + int.from_bytes(rest[:4])
        found.append(rest[:size])
        rest = rest[size:]
    return found


def test_the_reference_answers_every_request_once_for_any_chunking() -> None:
    data = request(310, 1) + request(11, 22) + request(310, 333)
    whole = responses([data])
    assert [each.count(reference.PULLED) for each in whole] == [0, 1, 0]
    for opaque, each in zip((1, 22, 333), whole, strict=True):
        assert b'"opaque":%d,' % opaque in each
    for cut in range(len(data)):
        assert responses([data[:cut], data[cut:]]) == whole
