"""What a write fails at."""

from bolide.errors import BolideError


class RowFailed(BolideError):
    """A row cannot be sent; says which one, and why."""

    def __init__(self, partition: int, row: int, topic: str | None, key: str | None, reason: str):
        place = f"row {row} of partition {partition}"
        told = [f"topic {topic!r}" if topic else "", f"keys {key!r}" if key else ""]
        words = ", ".join(filter(None, [place, *told]))
        super().__init__(f"{words}: {reason}")
        self.partition, self.row, self.topic, self.key = partition, row, topic, key
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.partition, self.row, self.topic, self.key, self.reason)


class RowsFailed(BolideError):
    """Rows could not be sent for as long as the sink was to wait; the last failure is the cause."""

    def __init__(self, partition: int, first: int, last: int, topic: str, reason: str) -> None:
        super().__init__(
            f"rows {first} to {last} of partition {partition}, topic {topic!r}: {reason}"
        )
        self.partition, self.first, self.last, self.topic = partition, first, last, topic
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.partition, self.first, self.last, self.topic, self.reason)
