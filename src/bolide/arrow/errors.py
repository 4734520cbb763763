"""What reading tables refuses or fails at.

BolideError
├── DataLost             messages of the range are gone, or are others
├── OutOfPatience        the cluster could not be reached for too long
└── ConfigError
    ├── BadPosition      where to start or end cannot be read
    └── BadValueSchema   the columns of a value cannot be read
"""

from bolide.errors import BolideError, ConfigError
from bolide.model.message_queue import MessageQueue


class DataLost(BolideError):
    """Messages that were to be read are no longer there."""

    def __init__(self, queue: MessageQueue, wanted: int, oldest: int, end: int) -> None:
        super().__init__(
            f"topic {queue.topic!r}, broker {queue.broker_name!r}, queue {queue.queue_id}: offset"
            f" {wanted} was wanted, but the broker has only {oldest} up to {end}: messages were"
            " deleted before they were read, or the topic was made anew. To go on with what is"
            " there, allow data loss (failOnDataLoss=false, fail_on_data_loss=False)"
        )
        self.queue, self.wanted, self.oldest, self.end = queue, wanted, oldest, end

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.queue, self.wanted, self.oldest, self.end)


class OutOfPatience(BolideError):
    """Nothing succeeded for as long as the reader was to wait; the last failure is the cause."""

    def __init__(self, what: str, seconds: float, cause: object) -> None:
        super().__init__(f"{what}: no success for {seconds:.3g} s; the last failure: {cause}")
        self.what, self.seconds, self.cause = what, seconds, cause

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.seconds, str(self.cause))


class BadPosition(ConfigError):
    """A start or an end that is none; the text names the option and what may stand there."""


class BadValueSchema(ConfigError):
    """A list of columns that is none; the text names the place."""
