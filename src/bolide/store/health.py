"""The reasons why a store refuses appends, if there are any."""

import logging
import threading

from bolide.store.errors import StoreUnwritable

log = logging.getLogger(__name__)

LOG_FILES = "the next log file"
COMMIT_LOG = "the commit log"
CONSUME_QUEUES = "the consume queues"
KEY_INDEX = "the key index"
DISK_SPACE = "disk space"


class Health:
    """Causes for refusing appends. A cause is removed once the operation it names succeeds."""

    def __init__(self) -> None:
        self.causes: dict[str, str] = {}
        self._lock = threading.Lock()  # serializes replacing `causes`; reads need no lock

    @property
    def writable(self) -> bool:
        return not self.causes

    def refuse(self, cause: str, reason: str) -> None:
        """Refuse appends until `allow` is called with the same cause."""
        with self._lock:
            if cause not in self.causes:
                log.error("the store takes no messages: %s", reason)
            self.causes = {**self.causes, cause: reason}

    def allow(self, cause: str) -> None:
        if cause not in self.causes:
            return
        with self._lock:
            self.causes = {key: text for key, text in self.causes.items() if key != cause}
        log.warning("%s is fine again%s", cause, "" if self.causes else ": messages are taken")

    def check(self) -> None:
        """Raises StoreUnwritable with all causes."""
        if self.causes:
            raise StoreUnwritable("; ".join(self.causes.values()))
