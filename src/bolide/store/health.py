"""Why a store takes no messages at the moment, if so."""

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
    """Causes for refusing appends; each goes when what it named works again."""

    def __init__(self) -> None:
        self.causes: dict[str, str] = {}
        self._lock = threading.Lock()  # one at a time replaces `causes`

    @property
    def writable(self) -> bool:
        return not self.causes

    def refuse(self, cause: str, reason: str) -> None:
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
        """Raises StoreUnwritable with every cause there is."""
        if self.causes:
            raise StoreUnwritable("; ".join(self.causes.values()))
