"""Settings of a broker by feature; `BrokerConfig` combines them."""

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


_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """Filters by more than tags. Durations are seconds here, milliseconds in files."""

    enable_property_filter: bool = option(
        True, "Filter messages by SQL92 expressions over their properties.", live=True
    )
    filter_support_retry: bool = option(
        False, "Filter retries too, by the expression for their first topic.", live=True
    )
    filter_data_clean_time_span: float = option(
        86_400.0,
        "Milliseconds after which the SQL92 expression of a group without consumers is forgotten.",
        bounds=(0, 365 * _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    filter_server_nums: int = option(
        0, "Processes that run filter functions; 0 is none, and no such filters.", bounds=(0, 64)
    )
    filter_function_timeout: float = option(
        1.0, "Milliseconds that a filter function gets for the messages of one pull.",
        bounds=(10, 60_000), scale=1000, ours=True,
    )  # fmt: skip
    filter_function_memory: int = option(
        256 * _MIB, "Bytes of memory that a process gets for its filter functions.",
        bounds=(16 * _MIB, 64 * 1024 * _MIB), ours=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PopSettings:
    """Consumers that pop messages and acknowledge them one by one."""

    pop_polling_size: int = option(
        1024, "Pops of one group and queue that may wait.", bounds=(0, _INT_MAX), live=True
    )
    max_pop_polling_size: int = option(
        100_000, "Pops that may wait in all.", bounds=(0, _INT_MAX), live=True
    )
    pop_from_retry_probability: int = option(
        20, "Pops out of a hundred that look for retries first, not last.",
        bounds=(0, 100), live=True,
    )  # fmt: skip
    enable_retry_topic_v2: bool = option(
        False, "Name the retry topics of POP %RETRY%group+topic; both names are always read.",
        key="enableRetryTopicV2", live=True,
    )  # fmt: skip
    pop_response_return_actual_retry_topic: bool = option(
        False, "Show POP consumers the name of the retry topic.", live=True
    )
    init_pop_offset_by_check_msg_in_mem: bool = option(
        True, "Have new POP groups begin at the start of a queue that is young.", live=True
    )
    enable_pop_message_threshold: bool = option(
        False, "Pop no more of a queue with too many messages that are not acknowledged.",
        live=True,
    )  # fmt: skip
    pop_inflight_message_threshold: int = option(
        10_000, "How many messages of a queue that are not acknowledged are too many.",
        bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
    revive_queue_num: int = option(
        8, "Queues of the revive log that a RocketMQ 5.x broker may have left.", bounds=(1, 128)
    )


@dataclass(frozen=True, kw_only=True)
class ReplySettings:
    """Requests over messages."""

    store_reply_message_enable: bool = option(
        True, "Store replies too, not only pass them on.", live=True
    )


_YEAR = 365 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class TimerSettings:
    """Messages that ask for a time of delivery."""

    timer_wheel_enable: bool = option(True, "Take messages with a delivery time.", live=True)
    timer_max_delay_sec: int = option(
        _YEAR, "Seconds that a message may wait at most.", bounds=(1, 100 * _YEAR), live=True
    )
    recall_message_enable: bool = option(
        True, "Let producers take back messages whose time has not come.", live=True
    )
    append_topic_for_timer_delete_key: bool = option(
        False, "Write recalls as RocketMQ 5.2 to 5.4 read them; all ways are understood.",
        live=True,
    )  # fmt: skip
    timer_precision_ms: int = option(
        1000, "Milliseconds of a slot of the timer wheel; its files depend on it.",
        bounds=(10, 10_000),
    )  # fmt: skip
    timer_roll_window_slot: int = option(
        2 * 24 * 3600, "Slots ahead in which messages wait; what is further away comes again.",
        bounds=(60, 7 * 24 * 3600 - 60),
    )  # fmt: skip
    mapped_file_size_timer_log: int = option(
        100 * 1024 * 1024, "Bytes of a file of the timer log.", bounds=(4096, 2**30)
    )


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Durations are seconds here, milliseconds in files."""

    reject_transaction_message: bool = option(False, "Take no transactional messages.", live=True)
    transaction_timeout: float = option(
        6.0, "Milliseconds after which the producer of an open transaction is asked.",
        key="transactionTimeOut", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    transaction_check_interval: float = option(
        30.0, "Milliseconds between two looks for open transactions.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    transaction_check_max: int = option(
        15, "How often a producer is asked; then the message is set aside.",
        bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
