"""Settings of request and reply."""

from dataclasses import dataclass

from bolide.config import option


@dataclass(frozen=True, kw_only=True)
class ReplySettings:
    """Requests over messages."""

    store_reply_message_enable: bool = option(
        True, "Store replies too, not only pass them on.", live=True
    )
