"""Names of topics and groups: which are allowed, which are the broker's own, what they mean."""

from bolide.broker.config import BrokerConfig
from bolide.model.names import (
    ALLOWED_NAME,
    MAX_SYSTEM_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TOOLS_GROUP,
    TRANSACTION_GROUP,
    is_dead_letter_topic,
    is_retry_topic,
    reply_topic,
)
from bolide.protocol.refusals import InvalidParameter
from bolide.store.unserved import LIGHT_PREFIX

SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
_LONGEST_GROUP = MAX_SYSTEM_TOPIC_LENGTH - len(RETRY_PREFIX)


def validate_topic(topic: str) -> None:
    """Raises InvalidParameter if a topic may not be called so."""
    if topic.startswith(LIGHT_PREFIX):
        raise InvalidParameter(
            f"topic {topic[:MAX_TOPIC_LENGTH]!r} is a light message queue, which this broker does"
            " not serve: use a topic of another name"
        )
    of_group = is_retry_topic(topic) or is_dead_letter_topic(topic)
    _validate("topic", topic, MAX_SYSTEM_TOPIC_LENGTH if of_group else MAX_TOPIC_LENGTH)


def validate_group(group: str) -> None:
    """Raises InvalidParameter if a consumer group may not be called so."""
    _validate("group", group, _LONGEST_GROUP)


def _validate(kind: str, name: str, longest: int) -> None:
    if not name.strip():
        raise InvalidParameter(f"The specified {kind} is blank: give it a name.")
    if not ALLOWED_NAME.fullmatch(name):
        raise InvalidParameter(
            f"The specified {kind} {name[:longest]!r} contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > longest:
        raise InvalidParameter(
            f"The specified {kind} {name[:longest]!r}… has {len(name)} characters:"
            f" at most {longest} are allowed."
        )


def system_topic_names(config: BrokerConfig) -> set[str]:
    """The topics that a broker with these settings keeps for itself."""
    cluster = config.broker_cluster_name
    own = {cluster, config.broker_name, reply_topic(cluster)}
    if config.trace_topic_enable:
        own.add(config.msg_trace_topic_name)
    return own | SYSTEM_TOPICS


def is_system_topic(topic: str, config: BrokerConfig) -> bool:
    return topic.startswith(SYSTEM_TOPIC_PREFIX) or topic in system_topic_names(config)
