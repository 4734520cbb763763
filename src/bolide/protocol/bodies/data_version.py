"""The version of a table, by which peers detect changes (`DataVersion`)."""

from bolide.protocol.fastjson import FrozenStruct
from bolide.protocol.header import Long


class DataVersion(FrozenStruct, frozen=True, kw_only=True):
    """Versions are equal if all three fields are; 4.9 has no state version."""

    counter: Long = 0
    state_version: Long = 0
    timestamp: Long = 0

    def bumped(self, timestamp: int) -> "DataVersion":
        """Return the version after one more change."""
        return DataVersion(
            counter=self.counter + 1, state_version=self.state_version, timestamp=timestamp
        )
