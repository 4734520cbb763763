"""How consumers that pop do so."""

from collections.abc import Sequence
from dataclasses import dataclass

from bolide.client.consuming.consumer_settings import ConsumerSettings
from bolide.client.consuming.pulling import FilterHook
from bolide.client.consuming.start_position import From
from bolide.client.settings import ClientArguments
from bolide.errors import ConfigError


class PopArguments(ClientArguments, total=False):
    """The keyword arguments of a pop consumer; `PopSettings` says what they do."""

    consume_from: str
    invisible: float
    ordered: bool
    max_reconsume_times: int | None
    filter_hooks: Sequence[FilterHook]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSettings(ConsumerSettings):
    """For consumers that pop; durations are seconds."""

    invisible: float = 30.0
    """How long a message belongs to who received it, unless `receive` says otherwise."""

    ordered: bool = False
    """Keep the order of each queue: no more of it until all that was received is done."""

    def __post_init__(self) -> None:
        ConsumerSettings.__post_init__(self)
        self._require_over(0, "invisible")
        if self.is_broadcasting:
            raise ConfigError('model="broadcasting": members of a group that pops share messages')
        if self.consume_from == From.TIMESTAMP:
            raise ConfigError(
                'consume_from="timestamp": a group that pops begins "first" or "last";'
                " its offsets can be reset by time afterwards"
            )
