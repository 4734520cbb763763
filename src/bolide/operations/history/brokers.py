"""`BrokerSampler`: what the brokers tell of themselves every few seconds."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic

from bolide.admin import AdminClient
from bolide.errors import BolideError
from bolide.operations.history.figures import BrokerFigures
from bolide.operations.history.rates import Counters
from bolide.operations.views import Failure, reason_of
from bolide.protocol.bodies.routes import ClusterInfo
from bolide.protocol.refusals import Refusal, RequestCodeNotSupported

log = logging.getLogger(__name__)

MASTER = 0
NOT_REGISTERED = "not registered at the NameServers"
_PATIENCE = 4.0
"""Seconds in which a broker has to answer."""
_PRODUCERS_EVERY = 15.0
"""Seconds between two requests for the table of all producers, which may be long."""
_FORGET_AFTER = 86_400.0
"""Seconds after which a broker that is gone is no longer known."""
_PUT, _GOT = "msgPutTotalTodayNow", "msgGetTotalTodayNow"
"""Counters since the start of a broker, without what is in system topics."""


class BrokerSampler:
    """Asks each broker by itself, so that one that hangs delays no other."""

    def __init__(self, admin: AdminClient, consumers_at: Callable[[str], set[str]]) -> None:
        """Configure it.

        Args:
            admin: with which it asks.
            consumers_at: client ids of the consumers at the broker of an address.
        """
        self._admin = admin
        self._consumers_at = consumers_at
        self.figures: dict[str, BrokerFigures] = {}
        """By key, with brokers that are down or were registered until lately."""
        self.failure: str = ""
        """Why the NameServers did not tell the brokers; empty if they did."""
        self.producers: dict[str, set[str] | None] = {}
        """Client ids of the producers by address; None if the broker does not tell."""
        self._counters: Counters[tuple[str, str]] = Counters(longest=60.0)
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._producers_asked: dict[str, float] = {}

    def remember(self, brokers: Iterable[BrokerFigures]) -> None:
        """Brokers that were known before this start; they are down until they are registered."""
        for each in brokers:
            key = each.key if each.key not in self.figures else _key_of_former(each)
            self.figures[key] = _not_registered(each)

    async def refresh_members(self) -> None:
        """Read from the NameServers which brokers there are."""
        try:
            info = await self._admin.clusters.info()
        except BolideError as exc:
            self.failure = reason_of(exc)
            return
        self.failure = ""
        self._compare(_members(info))

    def forget(self, address: str) -> None:
        """Know a broker no more that is not registered and does not come back."""
        for key, figures in list(self.figures.items()):
            if figures.address == address and figures.reason == NOT_REGISTERED:
                del self.figures[key]

    def _compare(self, registered: Mapping[str, BrokerFigures]) -> None:
        """Take over who is registered now; who was until lately is down.

        A slave that is promoted changes its id, and so its key, but not its address.
        """
        addresses = {each.address for each in registered.values()}
        for key, figures in list(self.figures.items()):
            if key in registered:
                if figures.address not in addresses:  # another broker has its id now
                    self.producers.pop(figures.address, None)
                    self.figures[_key_of_former(figures)] = _not_registered(figures)
            elif figures.address in addresses or time.time() - figures.sampled > _FORGET_AFTER:
                del self.figures[key]
            elif figures.reason != NOT_REGISTERED:
                self.producers.pop(figures.address, None)
                self.figures[key] = _not_registered(figures)
        for key, member in registered.items():
            known = self.figures.get(key)
            if known is None or known.address != member.address:
                self.figures[key] = member
            elif known.reason == NOT_REGISTERED:
                self.figures[key] = replace(known, reason="")

    def in_order(self) -> list[BrokerFigures]:
        """The figures by name, masters first."""
        return sorted(self.figures.values(), key=lambda each: (each.name, each.broker_id))

    def failures(self, others: Mapping[str, str] | None = None) -> list[Failure]:
        """Servers that do not tell what they should, and why.

        Args:
            others: failures that somebody else found, by address.
        """
        found = {"NameServer": self.failure} | {
            f"{each.key} ({each.address})": each.reason or (others or {}).get(each.address, "")
            for each in self.in_order()
        }
        return [Failure(server=server, reason=reason) for server, reason in found.items() if reason]

    def ask_all(self) -> None:
        """Begin to ask all brokers that are not being asked yet."""
        for key, figures in self.figures.items():
            if key not in self._asking and figures.reason != NOT_REGISTERED:
                self._asking[key] = asyncio.ensure_future(self._ask(figures))

    async def settle(self) -> None:
        """Wait until all that are being asked have answered, or have not."""
        await asyncio.gather(*self._asking.values())

    async def close(self) -> None:
        """Ask no more."""
        tasks = [*self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, member: BrokerFigures) -> None:
        try:
            await self._read_from(member)
        except Exception:  # whatever a server answered, the others are asked on
            log.exception("broker %s could not be sampled", member.key)
        finally:
            del self._asking[member.key]

    async def _read_from(self, member: BrokerFigures) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                runtime = await self._admin.brokers.runtime(member.address)
                await self._ask_producers(member)
        except TimeoutError:
            self._set_down(member, f"no answer within {_PATIENCE:g} s")
        except Refusal as exc:  # it is there, and does not tell
            self._put(_empty(member, is_up=True, reason=reason_of(exc)))
        except BolideError as exc:
            self._set_down(member, reason_of(exc))
        else:
            self._put(self._read(member, runtime))

    def _put(self, figures: BrokerFigures) -> None:
        """Take over an answer, unless another broker has come in its place meanwhile."""
        known = self.figures.get(figures.key)
        if known is not None and known.address == figures.address:
            self.figures[figures.key] = figures

    def _set_down(self, member: BrokerFigures, reason: str) -> None:
        self.producers.pop(member.address, None)
        down = _empty(member, is_up=False, reason=reason)
        self._put(replace(down, sampled=self._last_answer(member)))

    def _last_answer(self, member: BrokerFigures) -> float:
        known = self.figures.get(member.key)
        return member.sampled if known is None else known.sampled

    def _read(self, member: BrokerFigures, runtime: Mapping[str, str]) -> BrokerFigures:
        life = (member.address, runtime.get("bootTimestamp"))
        is_master = member.broker_id == MASTER

        def rate(counter: str, told: str) -> float | None:
            """From the counter; first what the broker tells, which is a mean of ten seconds."""
            value, found = _number(runtime.get(counter)), None
            if value is not None:
                found = self._counters.rate((member.key, counter), int(value), monotonic(), life)
            return _number(runtime.get(told, "").partition(" ")[0]) if found is None else found

        return BrokerFigures(
            name=member.name,
            broker_id=member.broker_id,
            address=member.address,
            cluster=member.cluster,
            sampled=time.time(),
            is_up=True,
            rate_in=rate(_PUT, "putTps") if is_master else None,
            rate_out=rate(_GOT, "getTransferredTps"),
            disk=_fullest_disk(runtime),
            clients=self._clients_at(member.address) if is_master else None,
            version=_version(runtime),
        )

    async def _ask_producers(self, member: BrokerFigures) -> None:
        if member.broker_id != MASTER:
            return
        asked = self._producers_asked.get(member.address)
        if asked is not None and monotonic() - asked < _PRODUCERS_EVERY:
            return
        self._producers_asked[member.address] = monotonic()
        try:
            table = (await self._admin.brokers.producers(member.address)).data
        except (RequestCodeNotSupported, Refusal):  # RocketMQ 4.9, or no permission
            self.producers[member.address] = None
        else:
            self.producers[member.address] = {
                each.client_id or "" for group in table.values() for each in group
            }

    def _clients_at(self, address: str) -> int | None:
        producers = self.producers.get(address)
        return None if producers is None else len(producers | self._consumers_at(address))


def _members(info: ClusterInfo) -> dict[str, BrokerFigures]:
    """The registered brokers, before they are asked."""
    members = [
        BrokerFigures(
            name=broker.broker_name,
            broker_id=broker_id,
            address=address,
            cluster=broker.cluster or "",
            sampled=time.time(),
            is_up=None,
            reason="not asked yet",
        )
        for broker in info.broker_addr_table.values()
        for broker_id, address in sorted(broker.broker_addrs.items())
    ]
    return {each.key: each for each in members}


def _empty(member: BrokerFigures, *, is_up: bool, reason: str) -> BrokerFigures:
    return replace(
        member, is_up=is_up, reason=reason, sampled=time.time(),
        rate_in=None, rate_out=None, disk=None, clients=None,
    )  # fmt: skip


def _not_registered(member: BrokerFigures) -> BrokerFigures:
    return replace(_empty(member, is_up=False, reason=NOT_REGISTERED), sampled=member.sampled)


def _key_of_former(member: BrokerFigures) -> str:
    """Under which a broker is kept whose name and id another one has."""
    return f"{member.key} {member.address}"


def _fullest_disk(runtime: Mapping[str, str]) -> float | None:
    """Of the disks of the log and of the queues; a log may be on several."""
    ratios = [_number(ratio) for key, ratio in runtime.items() if "DiskRatio" in key]
    return max((ratio for ratio in ratios if ratio is not None), default=None)


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if found >= 0 else None  # RocketMQ says -1 of a disk that it cannot read


def _version(runtime: Mapping[str, str]) -> str:
    own = runtime.get("bolideVersion")
    return f"Bolide {own}" if own else runtime.get("brokerVersionDesc", "").replace("_", ".")


async def ask_brokers(admin: AdminClient) -> tuple[list[BrokerFigures], list[Failure]]:
    """What the brokers tell now, without a history, and who does not tell."""
    sampler = BrokerSampler(admin, lambda _: set())
    await sampler.refresh_members()
    try:
        sampler.ask_all()
        await sampler.settle()
    finally:
        await sampler.close()
    told = sampler.in_order()
    return [replace(each, clients=None) for each in told], sampler.failures()
