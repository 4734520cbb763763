"""Topics of a NameServer: their queues by broker group, and the cache of encoded routes."""

from collections.abc import Callable, Collection

from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.bodies.routes import QueueRoute


class TopicQueues:
    """Queues by topic and broker group; a topic is removed together with its last queues.

    `encoded` caches encoded routes by topic and by whether they are standard JSON. A change of a
    topic invalidates its entries; the caller must call `clear_encoded` after a change of brokers or
    settings.
    """

    def __init__(self) -> None:
        self.encoded: dict[tuple[str, bool], bytes] = {}
        self._queues: dict[str, dict[str, QueueRoute]] = {}
        self._mappings: dict[str, dict[str, QueueMapping]] = {}

    def queues(self, topic: str) -> dict[str, QueueRoute]:
        """Queues of a topic by broker group."""
        return self._queues.get(topic, {})

    def __len__(self) -> int:
        return len(self._queues)

    def mappings(self, topic: str) -> dict[str, QueueMapping] | None:
        """Queue mappings of a static topic by broker group; None for other topics."""
        return self._mappings.get(topic)

    def set_queues(self, topic: str, queues: QueueRoute) -> None:
        groups = self._queues.setdefault(topic, {})
        if groups.get(queues.broker_name) != queues:
            groups[queues.broker_name] = queues
            self._drop_encoded(topic)

    def set_mapping(self, topic: str, mapping: QueueMapping) -> None:
        self._mappings.setdefault(topic, {})[mapping.bname] = mapping
        self._drop_encoded(topic)

    def delete(self, topic: str) -> None:
        self._queues.pop(topic, None)
        self._mappings.pop(topic, None)
        self._drop_encoded(topic)

    def delete_queues(self, topic: str, broker_name: str) -> None:
        """Remove the queues of a topic on one broker group."""
        mappings = self._mappings.get(topic, {})
        if mappings.pop(broker_name, None) is not None and not mappings:
            del self._mappings[topic]
        groups = self._queues.get(topic, {})
        if groups.pop(broker_name, None) is not None:
            self._drop_encoded(topic)
            if not groups:
                del self._queues[topic]

    def delete_group(self, broker_name: str) -> None:
        """Remove all queues and mappings of one broker group."""
        for topic in list(self._queues):
            self.delete_queues(topic, broker_name)
        for topic, mappings in list(self._mappings.items()):
            mappings.pop(broker_name, None)
            if not mappings:
                del self._mappings[topic]

    def change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permissions of all topics of a broker group; returns the number of topics."""
        count = 0
        for groups in self._queues.values():
            if queues := groups.get(broker_name):
                queues.perm = change(queues.perm)
                count += 1
        self.clear_encoded()
        return count

    def clear_encoded(self) -> None:
        self.encoded.clear()

    def _drop_encoded(self, topic: str) -> None:
        for standard in (True, False):
            self.encoded.pop((topic, standard), None)

    def names(self) -> list[str]:
        return list(self._queues)

    def names_on(self, broker_names: Collection[str]) -> list[str]:
        """Topics with queues on one of these broker groups."""
        return [
            topic
            for topic, groups in self._queues.items()
            if any(name in groups for name in broker_names)
        ]

    def names_by_flag(self, *, have: int, lack: int = 0) -> list[str]:
        """Topics whose system flag has the bits of `have` and none of `lack`."""
        return [
            topic
            for topic, groups in self._queues.items()
            if (flag := next(iter(groups.values())).topic_sys_flag) & have and not flag & lack
        ]
