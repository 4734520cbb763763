"""Broker settings by feature; `BrokerConfig` inherits them all."""

from dataclasses import dataclass

from bolide.config import Unit, option
from bolide.protocol.bodies.pop import RequestMode

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_DAY_MS = 86_400_000
_YEAR = 365 * 24 * 3600
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class AssignmentSettings:
    """Queue assignment by the broker."""

    server_load_balancer_enable: bool = option(
        True,
        "Divide queues among the consumers that query their assignment; otherwise each gets all.",
        live=True,
    )
    default_message_request_mode: RequestMode = option(
        RequestMode.PULL,
        "How consumers with queues assigned by the broker get messages, PULL or POP, unless"
        " setConsumeMode has set a mode.",
        live=True,
    )
    default_pop_share_queue_num: int = option(
        -1,
        "Number of members with which each POP consumer shares its queues; -1 means all.",
        bounds=(-1, _INT_MAX), live=True,
    )  # fmt: skip
    load_balance_poll_name_server_interval: float = option(
        30.0, "Milliseconds for which the queues of a topic on other brokers are cached.",
        bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ColdReadSettings:
    """Flow control of pulls that read messages from the disk."""

    cold_data_flow_control_enable: bool = option(
        False, "Hold back consumer groups that read too much from the disk.", live=True
    )
    cg_cold_read_threshold: int = option(
        3 * _MIB,
        "Bytes that a group may read from the disk in 5 s, unless it has a threshold of its own.",
        bounds=(0, _LONG_MAX), live=True, unit=Unit.BYTES,
    )  # fmt: skip
    global_cold_read_threshold: int = option(
        100 * _MIB, "Bytes that all groups together may read from the disk in 5 s.",
        bounds=(0, _LONG_MAX), live=True, unit=Unit.BYTES,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FilterSettings:
    """SQL92 and function filters. Durations are seconds here, milliseconds in files."""

    enable_property_filter: bool = option(
        True, "Filter messages by SQL92 expressions over their properties.", live=True
    )
    filter_support_retry: bool = option(
        False, "Also filter retries, by the expression for their original topic.", live=True
    )
    filter_data_clean_time_span: float = option(
        86_400.0,
        "Milliseconds after which the SQL92 expression of a group without consumers is removed.",
        bounds=(0, 365 * _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    filter_server_nums: int = option(
        0,
        "Number of processes that run filter functions; 0 disables such filters. Functions are"
        " registered only with access control.",
        bounds=(0, 64), fixed=True,
    )  # fmt: skip
    filter_function_timeout: float = option(
        1.0, "Milliseconds that a filter function may take for the messages of one pull.",
        bounds=(10, 60_000), scale=1000, ours=True, fixed=True,
    )  # fmt: skip
    filter_function_memory: int = option(
        256 * _MIB, "Memory limit in bytes of a process that runs filter functions.",
        bounds=(16 * _MIB, 64 * 1024 * _MIB), ours=True, fixed=True, unit=Unit.BYTES,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BrokerMetricsSettings:
    """Which metrics a broker has; how they are exposed is in `metrics.settings`."""

    enable_stats_metrics: bool = option(
        True, "Expose the numbers of topics and groups, and the permission.", live=True
    )
    enable_request_metrics: bool = option(
        True, "Expose messages and bytes in and out, and sizes of messages.", live=True
    )
    enable_connection_metrics: bool = option(True, "Expose connected clients.", live=True)
    enable_lag_and_dlq_metrics: bool = option(
        True, "Expose the lag of consumer groups, and their dead letters.", live=True
    )
    enable_transaction_metrics: bool = option(True, "Expose transactions.", live=True)
    enable_remoting_metrics: bool = option(True, "Expose latencies by request code.", live=True)
    enable_message_store_metrics: bool = option(
        True, "Expose sizes of the store, delayed and timer messages.", live=True
    )
    enable_pop_metrics: bool = option(True, "Expose what is behind POP consumption.", live=True)
    enable_queue_lag_metrics: bool = option(
        True, "Expose the lag of each group in each queue.", ours=True, live=True
    )
    enable_exporter_metrics: bool = option(
        True, "Expose the names of rocketmq-exporter too.", ours=True, live=True
    )
    enable_client_metrics: bool = option(
        True,
        "While somebody reads the metrics, ask each consumer once a minute for its figures, as"
        " rocketmq-exporter does, and expose them.",
        ours=True,
        live=True,
    )
    estimate_accumulation: bool = option(
        True,
        "Count only messages that the filter of a group lets through as its lag; a long backlog is"
        " estimated from a part of it.",
        live=True,
    )
    max_consume_queue_scan: int = option(
        20_000,
        "Messages of a queue that are looked at to count those that a filter lets through.",
        bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
    sample_count_threshold: int = option(
        5000,
        "Matching messages after which a longer backlog is estimated.",
        bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PopSettings:
    """POP consumption: messages are acknowledged one by one."""

    pop_polling_size: int = option(
        1024,
        "Maximum number of suspended pops per group and queue.",
        bounds=(0, _INT_MAX),
        live=True,
    )
    max_pop_polling_size: int = option(
        100_000, "Maximum number of suspended pops in total.", bounds=(0, _INT_MAX), live=True
    )
    pop_from_retry_probability: int = option(
        20, "Percentage of pops that read retries before other messages instead of after them.",
        bounds=(0, 100), live=True, unit=Unit.PERCENT,
    )  # fmt: skip
    pop_from_retry_probability_for_priority: int = option(
        0,
        "As popFromRetryProbability, for pops that go by priority.",
        bounds=(0, 100),
        live=True,
        unit=Unit.PERCENT,
    )
    priority_order_asc: bool = option(
        True,
        "The queue with the highest number has the highest priority; otherwise queue 0 has it.",
        live=True,
    )
    enable_retry_topic_v2: bool = option(
        False, "Name POP retry topics %RETRY%group+topic; topics with either name are always read.",
        key="enableRetryTopicV2", live=True,
    )  # fmt: skip
    pop_response_return_actual_retry_topic: bool = option(
        False, "Show POP consumers the name of the retry topic.", live=True
    )
    init_pop_offset_by_check_msg_in_mem: bool = option(
        True,
        "Start a new POP group at the beginning of a queue that may still be in memory as a whole.",
        live=True,
    )
    enable_pop_message_threshold: bool = option(
        False, "Stop pops from a queue with too many unacknowledged messages.",
        live=True,
    )  # fmt: skip
    pop_inflight_message_threshold: int = option(
        10_000, "Number of unacknowledged messages at which enablePopMessageThreshold stops pops.",
        bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
    revive_queue_num: int = option(
        8,
        "Number of queues of the revive topic that a RocketMQ 5.x broker may have left.",
        bounds=(1, 128),
    )


@dataclass(frozen=True, kw_only=True)
class ReplySettings:
    """Request-reply messages."""

    store_reply_message_enable: bool = option(
        True, "Store replies in addition to pushing them to the requesting client.", live=True
    )


@dataclass(frozen=True, kw_only=True)
class TimerSettings:
    """Messages with a delivery time."""

    timer_wheel_enable: bool = option(True, "Accept messages with a delivery time.", live=True)
    timer_max_delay_sec: int = option(
        _YEAR,
        "Maximum delay of a message in seconds.",
        bounds=(1, 100 * _YEAR),
        live=True,
        unit=Unit.SECONDS,
    )
    recall_message_enable: bool = option(
        True, "Let producers recall messages that are not delivered yet.", live=True
    )
    append_topic_for_timer_delete_key: bool = option(
        False, "Write recalls in the format of RocketMQ 5.2 to 5.4; every format can be read.",
        live=True,
    )  # fmt: skip
    timer_precision_ms: int = option(
        1000, "Milliseconds per slot of the timer wheel; the format of its files depends on it.",
        bounds=(10, 10_000), unit=Unit.MILLISECONDS,
    )  # fmt: skip
    timer_roll_window_slot: int = option(
        2 * 24 * 3600,
        "Number of slots that the timer wheel covers; messages with a later time are rolled over.",
        bounds=(60, 7 * 24 * 3600 - 60),
    )  # fmt: skip
    mapped_file_size_timer_log: int = option(
        100 * 1024 * 1024,
        "Size in bytes of a file of the timer log.",
        bounds=(4096, 2**30),
        unit=Unit.BYTES,
    )


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Transactional messages. Durations are seconds here, milliseconds in files."""

    reject_transaction_message: bool = option(False, "Refuse transactional messages.", live=True)
    transaction_timeout: float = option(
        6.0, "Milliseconds after which the broker checks an open transaction with its producer.",
        key="transactionTimeOut", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    transaction_check_interval: float = option(
        30.0, "Milliseconds between two scans for open transactions.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    transaction_check_max: int = option(
        15, "Maximum number of checks; after them, the message goes to TRANS_CHECK_MAX_TIME_TOPIC.",
        bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
