"""Settings of the sharing out of queues by the broker."""

from dataclasses import dataclass

from bolide.config import option
from bolide.protocol.bodies.pop import RequestMode

_INT_MAX = 2**31 - 1
_DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class AssignmentSettings:
    """Consumers that ask the broker which queues are theirs."""

    server_load_balancer_enable: bool = option(
        True, "Share queues out to consumers that ask; otherwise each gets all of them.", live=True
    )
    default_message_request_mode: RequestMode = option(
        RequestMode.PULL,
        "How those consumers get messages, PULL or POP, unless setConsumeMode says otherwise.",
        live=True,
    )
    default_pop_share_queue_num: int = option(
        -1,
        "With how many members each of them shares its queues when they pop; -1 is with all.",
        bounds=(-1, _INT_MAX), live=True,
    )  # fmt: skip
    load_balance_poll_name_server_interval: float = option(
        30.0, "Milliseconds after which a NameServer is asked anew for the queues of a topic.",
        bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
