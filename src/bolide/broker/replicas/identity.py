"""The id of a replica within its group, which a controller gives out once (`BrokerMetadata`).

The id is applied for with a check code. Both are in `brokerIdentity-temp` before the controller is
asked, so that a broker that crashes meanwhile asks for the same id with the same code again. Then
`brokerIdentity` holds `cluster#brokerName#brokerId`.
"""

from dataclasses import dataclass
from pathlib import Path

from bolide.errors import ConfigError
from bolide.store.disk import Disk

_SEPARATOR = "#"
_FIELDS, _TEMP_FIELDS = 3, 4


@dataclass(frozen=True, slots=True)
class PendingIdentity:
    """An id that was applied for."""

    broker_id: int
    check_code: str


class IdentityFile:
    """The files of a replica's id. All methods block."""

    def __init__(
        self, path: Path, cluster: str, broker_name: str, disk: Disk | None = None
    ) -> None:
        self.path = path
        self._temp = path.with_name(f"{path.name}-temp")
        self._cluster = cluster
        self._broker_name = broker_name
        self._disk = disk or Disk()

    def load(self) -> int | None:
        """The id of this replica; None if it has none yet.

        Raises:
            ConfigError: the file belongs to another group, or is damaged.
        """
        fields = self._read(self.path, _FIELDS)
        return int(fields[2]) if fields else None

    def load_pending(self) -> PendingIdentity | None:
        """What was applied for before a crash."""
        fields = self._read(self._temp, _TEMP_FIELDS)
        return PendingIdentity(int(fields[2]), fields[3]) if fields else None

    def apply_for(self, pending: PendingIdentity) -> None:
        self._write(self._temp, str(pending.broker_id), pending.check_code)

    def confirm(self, broker_id: int) -> None:
        """Keep an id that the controller has given."""
        self._write(self.path, str(broker_id))
        self.discard_pending()

    def discard_pending(self) -> None:
        self._temp.unlink(missing_ok=True)

    def _read(self, path: Path, count: int) -> list[str]:
        if not path.exists():
            return []
        fields = path.read_text().strip().split(_SEPARATOR, count - 1)
        if len(fields) != count or not fields[2].isdigit():
            raise ConfigError(f"{path}: damaged, remove it to get a new id from the controller")
        if fields[:2] != [self._cluster, self._broker_name]:
            raise ConfigError(
                f"{path}: this store belongs to broker {fields[1]} of cluster {fields[0]}, not to"
                f" {self._broker_name} of {self._cluster}"
            )
        return fields

    def _write(self, path: Path, *fields: str) -> None:
        text = _SEPARATOR.join((self._cluster, self._broker_name, *fields))
        self._disk.replace(path, text.encode())
