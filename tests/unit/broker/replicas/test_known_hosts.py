"""Which hosts may speak as controller, NameServer, master or slave on an open broker."""

import asyncio
import socket
from typing import Any

import pytest

from bolide.broker.replicas.known_hosts import KnownHosts, Speaker
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import NoPermission
from tests.support.aio import on_loop
from tests.support.clock import FakeClock

CODE = RequestCode.NOTIFY_BROKER_ROLE_CHANGED


def controllers(*addresses: str) -> Speaker:
    return Speaker("a controller", "Name them in controllerAddr", lambda: addresses)


async def is_taken(hosts: KnownHosts, peer: str, speaker: Speaker) -> bool:
    try:
        await hosts.require(CODE, peer, speaker)
    except NoPermission:
        return False
    return True


@pytest.mark.parametrize(
    ("peer", "taken"),
    [
        ("10.0.0.1:5000", True),
        ("10.0.0.2:5000", False),
        ("[::ffff:10.0.0.1]:5000", True),
        ("127.0.0.1:5000", True),
        ("[::1]:5000", True),
        ("[fd00::5]:5000", True),
        ("[fd00::6]:5000", False),
        ("[fd00::5%eth0]:5000", True),
        ("?", False),
    ],
)
@on_loop
async def test_loopback_and_listed_hosts_are_known(peer: str, *, taken: bool) -> None:
    speaker = controllers("10.0.0.1:9878", "[fd00::5]:9878")
    assert await is_taken(KnownHosts(is_open=True), peer, speaker) is taken


@on_loop
async def test_a_refusal_says_what_to_set() -> None:
    with pytest.raises(NoPermission) as refused:
        await KnownHosts(is_open=True).require(CODE, "10.0.0.9:1", controllers())
    assert "NOTIFY_BROKER_ROLE_CHANGED from 10.0.0.9:1 is refused" in refused.value.remark
    assert "controllerAddr" in refused.value.remark
    assert "access control" in refused.value.remark


@on_loop
async def test_with_access_control_the_gate_has_decided() -> None:
    assert await is_taken(KnownHosts(is_open=False), "10.0.0.9:1", controllers())


@on_loop
async def test_a_role_may_admit_hosts_by_a_rule() -> None:
    speaker = Speaker("a slave", "Name them", admits=lambda host: host.startswith("10.1."))
    hosts = KnownHosts(is_open=True)
    assert await is_taken(hosts, "10.1.2.3:1", speaker)
    assert not await is_taken(hosts, "10.2.2.3:1", speaker)


@on_loop
async def test_names_are_resolved_and_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = FakeClock(100.0), []
    answer = "10.0.0.1"

    async def resolve(host: str, *_: object, **__: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        if answer == "":
            raise socket.gaierror("no such name")
        return [(0, 0, 0, "", (answer, 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve, raising=False)
    hosts, speaker = KnownHosts(is_open=True, clock=clock), controllers("controller-1:9878")

    assert await is_taken(hosts, "10.0.0.1:1", speaker)
    assert not await is_taken(hosts, "10.0.0.2:1", speaker)
    assert asked == ["controller-1"]
    clock.advance(11)
    answer = "10.0.0.2"
    assert await is_taken(hosts, "10.0.0.2:1", speaker)
    clock.advance(11)
    answer = ""
    assert not await is_taken(hosts, "10.0.0.2:1", speaker)
