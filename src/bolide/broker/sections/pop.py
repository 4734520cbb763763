"""Settings of POP consumers."""

from dataclasses import dataclass

from bolide.config import option

_INT_MAX = 2**31 - 1


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
