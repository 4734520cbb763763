"""`Pairs` finds what is counted by group and topic when one of the two is deleted."""


class Pairs:
    """A set of pairs of a group and a topic, found by either of them."""

    def __init__(self) -> None:
        self._topics: dict[str, set[str]] = {}
        """By group."""
        self._groups: dict[str, set[str]] = {}
        """By topic."""

    def add(self, group: str, topic: str) -> None:
        self._topics.setdefault(group, set()).add(topic)
        self._groups.setdefault(topic, set()).add(group)

    def of_topic(self, topic: str) -> list[tuple[str, str]]:
        return [(group, topic) for group in self._groups.get(topic, ())]

    def of_group(self, group: str) -> list[tuple[str, str]]:
        return [(group, topic) for topic in self._topics.get(group, ())]

    def discard(self, group: str, topic: str) -> None:
        _discard(self._topics, group, topic)
        _discard(self._groups, topic, group)


def _discard(table: dict[str, set[str]], key: str, other: str) -> None:
    others = table.get(key, set())
    others.discard(other)
    if not others:
        table.pop(key, None)
