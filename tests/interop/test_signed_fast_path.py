"""Java clients that sign their requests are served by the fast path, which verifies them."""

import asyncio
from pathlib import Path

import pytest

from bolide.auth.access import Identity, OpenAccess
from bolide.broker.gate import Gate
from bolide.broker.server import Broker
from bolide.kernel import COMPILED
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from bolide.protocol.signature import ACCESS_KEY, is_signed_by
from tests.interop.bench import Bench
from tests.interop.ours import bolide_namesrv
from tests.support.aio import on_loop, until
from tests.support.broker import configs_in

SECRET = "not the default one"
SENT = 2000
PROGRAMS = "org.apache.rocketmq.example.benchmark"

pytestmark = pytest.mark.skipif(not COMPILED, reason="there is no fast path")


class OneAccount(OpenAccess):
    """Verifies every signature, and notes who was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[tuple[int, str | None]] = []

    def check(self, request: Frame, peer: str) -> Identity:
        fields = request.fields or {}
        if not is_signed_by(fields, request.body, SECRET.encode(), request.version):
            self.refused.append((request.code, fields.get(ACCESS_KEY)))
            raise NoPermission("wrong signature")
        return Identity(fields.get(ACCESS_KEY), peer, is_verified=True)

    def secret_of(self, identity: Identity) -> bytes | None:
        return SECRET.encode()


@pytest.mark.parametrize("version", ["5.x"])
@on_loop
async def test_sends_and_pulls_of_java_clients_that_sign(
    java_bench: Bench, tmp_path: Path, version: str
) -> None:
    access = OneAccount()
    with bolide_namesrv(tmp_path / "names") as names:
        config, store = configs_in(tmp_path, broker_ip1="127.0.0.1", name_servers=(names.address,))
        async with Broker(config, store, gate=Gate(access=access)) as broker:
            assert broker.parts.fast_path is not None
            served = broker.parts.fast_path.fall_throughs
            where = ("-n", names.address, "-t", "Signed", "-a", "true", "-ak", "me", "-sk")
            sender = java_bench.client(
                version, f"{PROGRAMS}.Producer", *where, SECRET, "-w", "4", "-q", SENT
            )
            await asyncio.to_thread(sender.wait, 60)
            assert served.served_sends >= SENT * 9 // 10, served.counts
            java_bench.client(version, f"{PROGRAMS}.Consumer", *where, SECRET, "-p", "false")
            pulled = served.served_pulls
            await until(lambda: served.served_pulls > pulled + 10, within=60)
            assert not access.refused
            assert "SIGNATURE" not in served.counts
            java_bench.client(version, f"{PROGRAMS}.Producer", *where, "wrong", "-w", "1", "-q", 5)
            await until(lambda: access.refused, within=60)
            assert {key for _, key in access.refused} == {"me"}
