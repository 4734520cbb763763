"""The HTTP server of metrics, with good, bad and slow clients."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from bolide.metrics import endpoint
from bolide.metrics.exporter import Collection, Exporter, Readiness
from bolide.metrics.families import Family, Kind
from bolide.metrics.settings import ExporterType, MetricsSettings
from tests.support.aio import on_loop
from tests.support.metrics import get, http, read_reply, scrape


@dataclass(frozen=True, kw_only=True)
class Settings(MetricsSettings):
    metrics_prom_exporter_port: int = 0


class Server:
    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        self.begun = 0
        self.series, self.width = 3, 0

    def begin(self) -> Collection:
        self.begun += 1

        def families(rest: Callable[[], None]) -> Iterator[Family]:
            rest()
            if self.series < 0:
                raise ValueError("must not be negative")
            series = [((f"{n:0{self.width}}",), n) for n in range(self.series)]
            yield Family("some", Kind.GAUGE, "x", series, labels=("n",))

        return families

    def readiness(self) -> Readiness:
        return Readiness(self.missing, {"role": "master"})


@asynccontextmanager
async def serving(server: Server, **settings: object) -> AsyncIterator[Exporter]:
    config = Settings(**settings)  # type: ignore[arg-type]
    async with Exporter(config, server.begin, server.readiness) as exporter:
        yield exporter


@on_loop
async def test_requests_and_their_answers() -> None:
    server = Server()
    async with serving(server, metrics_cardinality_limit=2) as exporter:
        address = exporter.address
        assert address is not None
        assert address.startswith("127.0.0.1:")
        found = await scrape(exporter)
        assert len(found.all("some")) == 2
        assert found.one("bolide_metrics_series_dropped", metric="some") == 1
        assert found.one("process_start_time_seconds") > 0  # of prometheus_client
        plain = await get(exporter, "/metrics?name=x")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "content-encoding" not in plain.headers
        assert (await get(exporter, "/healthz")).status == 200
        assert (await get(exporter, "/readyz")).status == 200
        server.missing["disk"] = "it is gone"
        ready = await get(exporter, "/readyz")
        assert (ready.status, ready.headers["content-type"]) == (503, "application/json")
        assert '"disk": "it is gone"' in ready.text
        server.missing = {"role": "it is a slave"}
        assert (await get(exporter, "/readyz")).status == 503
        assert (await get(exporter, "/readyz?role=any")).status == 200
        assert (await get(exporter, "/admin")).status == 404
        head = await http(address, b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (head.status, head.body) == (200, b"")
        for method in (b"POST", b"PUT", b"DELETE", b"TRACE"):
            body = b"Content-Length: 3\r\n\r\nabc"
            refused = await http(address, method + b" /metrics HTTP/1.1\r\nHost: x\r\n" + body)
            assert refused.status == 405
            assert refused.headers["allow"] == "GET, HEAD"


@on_loop
async def test_requests_at_the_same_time_share_one_collection() -> None:
    server = Server()
    async with serving(server) as exporter:
        replies = await asyncio.gather(*(get(exporter, "/metrics") for _ in range(20)))
        assert {reply.status for reply in replies} == {200}
        assert server.begun == 1


@on_loop
async def test_bad_and_slow_clients_harm_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_REQUEST_TIMEOUT", 0.2)
    monkeypatch.setattr(endpoint, "_RESPONSE_TIMEOUT", 0.3)
    server = Server()
    async with serving(server) as exporter:
        address = exporter.address
        assert address is not None
        host, _, port = address.rpartition(":")
        for bad in (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
            assert (await http(address, bad)).status == 400
        huge = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000
        assert (await http(address, huge)).status in {400, 431}
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HT")
        assert await asyncio.wait_for(reader.read(), 5) == b""  # closed after its time
        writer.close()

        server.series, server.width = 40_000, 500
        slow_reader, slow = await asyncio.open_connection(host, int(port), limit=1024)
        slow.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(1.0)
        assert (await get(exporter, "/healthz")).status == 200
        slow.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read_reply(slow_reader)
        slow.close()


@on_loop
async def test_the_end_of_a_connection_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_flushed(_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(endpoint, "_RESPONSE_TIMEOUT", 0.1)
    monkeypatch.setattr(endpoint, "_finish", never_flushed)
    async with serving(Server()) as exporter:
        assert exporter.address is not None
        host, _, port = exporter.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"ok" in await asyncio.wait_for(reader.read(), 5)  # to its end
        writer.close()


@on_loop
async def test_many_idle_connections_leave_room_for_the_next_one() -> None:
    async with serving(Server()) as exporter:
        assert exporter.address is not None
        host, _, port = exporter.address.rpartition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(60)]
        assert (await get(exporter, "/healthz")).status == 200
        for _, writer in opened:
            writer.close()


@on_loop
async def test_a_connection_serves_one_request_after_another() -> None:
    async with serving(Server()) as exporter:
        assert exporter.address is not None
        host, _, port = exporter.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(3):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await read_reply(reader)).status == 200
        writer.close()


@on_loop
async def test_a_collection_that_fails_is_an_error_of_one_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    async with serving(server) as exporter:
        server.series = -1
        assert (await get(exporter, "/metrics")).status == 500
        assert "must not be negative" in caplog.text
        server.series = 1
        assert (await get(exporter, "/metrics")).status == 200


@on_loop
async def test_nothing_is_collected_from_a_server_that_stops() -> None:
    server = Server()
    async with serving(server) as exporter:
        await exporter.quiet()
        assert (await get(exporter, "/metrics")).status == 503
        assert (await get(exporter, "/healthz")).status == 200


@on_loop
async def test_the_log_as_a_receiver(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "metrics_exporter_type": ExporterType.LOG,
        "metric_logging_exporter_interval": 0.05,
    }
    with caplog.at_level("INFO", "bolide.metrics"):
        async with serving(Server(), **settings):
            await asyncio.sleep(0.3)
    assert 'some{n="2"} 2' in caplog.text
