"""The facts about settings: complete, and honest about units."""

import re
import time
from contextlib import AsyncExitStack

from bolide.admin import AdminClient
from bolide.admin.settings import Server, all_settings, find, near, read_places
from bolide.config import Unit
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo
from bolide.protocol.codes import RequestCode
from tests.support.aio import on_loop
from tests.support.mute import mute_server
from tests.unit.admin.scripted import Scripted

_WORDS = {
    Unit.MILLISECONDS: r"\bmilliseconds\b",
    Unit.SECONDS: r"\bseconds\b",
    Unit.MINUTES: r"\bminutes\b",
    Unit.HOURS: r"\bhours\b",
    Unit.BYTES: r"\bbytes\b",
    Unit.PERCENT: r"\bpercent(age)?\b",
    Unit.PAGES: r"\bpages\b",
}
_SAID_OTHERWISE = {"dedupMaxKeys", "timerRollWindowSlot", "popFromRetryProbabilityForPriority"}


def test_the_unit_of_every_number_is_the_one_of_its_description() -> None:
    wrong = {}
    for each in all_settings():
        option = each.option
        if option is None or option.kind not in {int, float}:
            continue
        if each.key in _SAID_OTHERWISE:
            continue
        named = [unit for unit, words in _WORDS.items() if re.search(words, each.meaning.lower())]
        unit = option.unit
        if unit is Unit.TIMESTAMP:
            unit = Unit.MILLISECONDS
        if (unit is None) != (not named) or (unit is not None and unit not in named):
            wrong[each.server, each.key] = (each.unit, each.meaning)
    assert wrong == {}


def test_every_key_is_found_by_any_of_its_spellings() -> None:
    for each in all_settings():
        for spelling in (each.key, each.key.upper(), *each.aliases):
            assert each in find(spelling)
    assert {each.server for each in find("listenPort")} == set(Server) - {Server.STORE}
    assert find("nothing") == []
    assert near("flushDiskTyp")[0] == "flushDiskType"


def test_what_differs_is_compared_as_a_value_and_not_as_a_text() -> None:
    (setting,) = find("flushDiskType")
    assert not setting.differs("async_flush")
    assert setting.differs("SYNC_FLUSH")
    (ratio,) = find("diskMaxUsedSpaceRatio")
    assert not ratio.differs(" 75")
    assert ratio.differs("many")


def test_every_key_says_when_a_change_takes_effect_or_why_it_never_does() -> None:
    for each in all_settings():
        assert each.in_effect in {"at once", "after a restart", "fixed", "never"}
        assert bool(each.no_effect) == (each.in_effect == "never")
        assert bool(each.meaning) != bool(each.no_effect)


@on_loop
async def test_servers_are_asked_at_the_same_time_and_kept_in_order() -> None:
    timeout = 0.5
    async with AsyncExitStack() as stack:
        name_server, sound = Scripted(), Scripted()
        for each in (name_server, sound):
            await stack.enter_async_context(each.server)
        silent = [await stack.enter_async_context(mute_server()) for _ in range(6)]
        table = {
            f"broker-{number}": BrokerRoute(broker_name=f"broker-{number}", broker_addrs={0: at})
            for number, at in enumerate([*silent, sound.address])
        }
        name_server.answers(
            RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo(broker_addr_table=table)
        )
        name_server.answers(RequestCode.GET_NAMESRV_CONFIG, b"listenPort=9876")
        sound.answers(RequestCode.GET_BROKER_CONFIG, b"brokerName=broker-6")
        admin = await stack.enter_async_context(AdminClient(name_server.address, timeout=timeout))

        begun = time.monotonic()
        places, failures = await read_places(admin)
        took = time.monotonic() - begun

    assert [each.name for each in places] == ["broker-6", "namesrv"]
    assert [at for at, exc in zip(silent, failures, strict=True) if at in str(exc)] == silent
    assert took < 4 * timeout
