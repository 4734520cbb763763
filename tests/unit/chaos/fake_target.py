"""A cluster that only notes what is done to it."""

from collections.abc import Iterable

from bolide.chaos.faults import Faults


class FakeTarget:
    """Two broker groups of two members, two NameServers, no controllers."""

    def __init__(self, *, can_cut: bool = True, can_inject: bool = True) -> None:
        self.name_servers = "127.0.0.1:1"
        self.can_cut = can_cut
        self.can_inject = can_inject
        self.done: list[str] = []
        self._members = {
            "namesrv": ["namesrv-0", "namesrv-1"],
            "controller": [],
            "broker": ["broker-a-0", "broker-a-1", "broker-b-0", "broker-b-1"],
        }

    def members(self, role: str) -> list[str]:
        return self._members[role]

    def group_of(self, member: str) -> str:
        return member.rpartition("-")[0]

    def address_of(self, member: str) -> str:
        return f"127.0.0.1:{10911 + self._members['broker'].index(member)}"

    def controllers(self) -> dict[str, str]:
        return {}

    async def masters(self) -> dict[str, str]:
        return {"broker-a": "broker-a-0", "broker-b": "broker-b-0"}

    async def kill(self, member: str) -> None:
        self.done.append(f"kill {member}")

    async def stop(self, member: str) -> None:
        self.done.append(f"stop {member}")

    async def start(self, member: str) -> None:
        self.done.append(f"start {member}")

    def pause(self, member: str) -> None:
        self.done.append(f"pause {member}")

    def resume(self, member: str) -> None:
        self.done.append(f"resume {member}")

    async def cut(self, member: str, others: Iterable[str], direction: str) -> None:
        self.done.append(f"cut {member} from {len(list(others)) or 'all'} {direction}")

    async def slow(self, member: str, delay: float, rate: float) -> None:
        self.done.append(f"slow {member} {delay:g} {rate:g}")

    async def heal(self, member: str | None = None) -> None:
        self.done.append(f"heal {member}")

    async def inject(self, member: str, faults: Faults) -> None:
        self.done.append(f"inject {member} {faults != Faults()}")
