"""What each request that administers a broker is about, and how to read the state of it."""

import hashlib
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import msgspec

from bolide import properties
from bolide.auth.audit import MAX_NAMES, Describer, Subject, is_secret, target_of
from bolide.broker.background import ADMIN, on_thread, read_json
from bolide.broker.components import Parts
from bolide.broker.metadata.topics import is_system_topic
from bolide.broker.settings.live import Settings
from bolide.config import options_of
from bolide.protocol import fastjson
from bolide.protocol.bodies.access import Acl, User
from bolide.protocol.bodies.audit import State
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigList
from bolide.protocol.bodies.pop import RequestModeSetting
from bolide.protocol.bodies.timers import PendingTimers
from bolide.protocol.bodies.topics import TopicConfigList
from bolide.protocol.codes import RequestCode as Code
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.filters import FilterFunctionHeader
from bolide.protocol.headers.groups import DeleteGroupHeader, GroupForbiddenHeader
from bolide.protocol.headers.offsets import CloneOffsetsHeader, ResetOffsetHeader
from bolide.protocol.headers.timers import RecallTimersHeader
from bolide.protocol.headers.topics import CreateTopicHeader, TopicHeader
from bolide.remoting.dispatch import Reply, Request
from bolide.store.unsupported import LIGHT_PREFIX

EXEMPT: dict[int, str] = {
    Code.BOLIDE_READ_AUDIT: "reads the audit log",
    Code.BOLIDE_GET_FILTER_FUNCTION: "reads the source of a filter function",
    Code.GET_BROKER_CLUSTER_ACL_INFO: "reads the versions of ACL files",
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: "reads ACL files",
    Code.AUTH_GET_USER: "reads a user",
    Code.AUTH_LIST_USER: "reads users",
    Code.AUTH_GET_ACL: "reads the policies of a subject",
    Code.AUTH_LIST_ACL: "reads policies",
    Code.POP_ROLLBACK: "does nothing on this broker",
    Code.SWITCH_TIMER_ENGINE: "accepts the only engine that there is",
}
"""Requests that administer and change nothing, with the reason why none of them is recorded."""

_MAX_QUEUES = 1024
_ACCOUNT_FIELDS: dict[int, str] = {
    Code.UPDATE_AND_CREATE_ACL_CONFIG: "accessKey",
    Code.DELETE_ACL_CONFIG: "accessKey",
    Code.AUTH_CREATE_USER: "username",
    Code.AUTH_UPDATE_USER: "username",
    Code.AUTH_DELETE_USER: "username",
    Code.AUTH_CREATE_ACL: "subject",
    Code.AUTH_UPDATE_ACL: "subject",
    Code.AUTH_DELETE_ACL: "subject",
}
"""The field that names the account. A request may have others too, which its handler ignores."""
_READ_AHEAD = "dataReadAheadEnable"


@runtime_checkable
class ShowsAccounts(Protocol):
    """An `Access` that can show its accounts for the audit."""

    def account_states(self, name: str) -> State:
        """An account and its rules, without any secret; of an empty name, what is global."""
        ...


class Subjects:
    """Describes the requests to one broker."""

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self._parts = parts
        self._settings = settings
        self._access = parts.gate.access

    def describers(self) -> dict[int, Describer]:
        by_header = self._by_header
        accounts = self._account
        return {
            Code.UPDATE_AND_CREATE_TOPIC: self._topic,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: self._topic_list,
            Code.UPDATE_AND_CREATE_STATIC_TOPIC: self._static_topic,
            Code.DELETE_TOPIC_IN_BROKER: self._deleted_topic,
            Code.CLEAN_UNUSED_TOPIC: self._unused_topics,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._group,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._group_list,
            Code.DELETE_SUBSCRIPTIONGROUP: self._deleted_group,
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbidden,
            Code.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            Code.CLONE_GROUP_OFFSET: self._cloned,
            Code.SET_MESSAGE_REQUEST_MODE: self._request_mode,
            Code.UPDATE_BROKER_CONFIG: self._changed_settings,
            Code.SET_COMMITLOG_READ_MODE: self._read_mode,
            Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self._thresholds,
            Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self._threshold,
            Code.CLEAN_EXPIRED_CONSUMEQUEUE: self._log_range,
            Code.DELETE_EXPIRED_COMMITLOG: self._log_range,
            Code.BOLIDE_RECALL_TIMERS: _recalled,
            Code.BOLIDE_UPDATE_FILTER_FUNCTION: self._filter_function,
            Code.BOLIDE_DELETE_FILTER_FUNCTION: self._filter_function,
            Code.CONSUME_MESSAGE_DIRECTLY: by_header,
            Code.BOLIDE_RESOLVE_TRANSACTION: by_header,
            Code.RESUME_CHECK_HALF_MESSAGE: by_header,
            Code.UPDATE_AND_CREATE_ACL_CONFIG: accounts,
            Code.DELETE_ACL_CONFIG: accounts,
            Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: accounts,
            Code.AUTH_CREATE_USER: self._user,
            Code.AUTH_UPDATE_USER: self._user,
            Code.AUTH_DELETE_USER: accounts,
            Code.AUTH_CREATE_ACL: self._policies,
            Code.AUTH_UPDATE_ACL: self._policies,
            Code.AUTH_DELETE_ACL: accounts,
        }

    def _by_header(self, request: Request[Any]) -> Subject:
        return Subject(target_of(request.header))

    # ---- topics

    def _topic(self, request: Request[CreateTopicHeader]) -> Subject:
        return self._topics([request.header.topic])

    async def _topic_list(self, request: Request[NoHeader]) -> Subject:
        configs = (await read_json(request, TopicConfigList)).topic_config_list
        return self._topics([config.topic_name for config in configs])

    def _topics(self, names: list[str]) -> Subject:
        find = self._parts.topics.find
        target = {"topic": names[0]} if len(names) == 1 else {"topics": names}
        return Subject(target, lambda: {name: _members(find(name)) for name in names})

    def _static_topic(self, request: Request[CreateTopicHeader]) -> Subject:
        topic, parts = request.header.topic, self._parts
        return Subject(
            {"topic": topic},
            lambda: {
                topic: _members(parts.topics.find(topic)),
                "mapping": _mapping(parts.mappings.find(topic)),
            },
        )

    def _deleted_topic(self, request: Request[TopicHeader]) -> Subject:
        topic = request.header.topic
        parts = self._parts

        def state() -> State:
            config = parts.topics.find(topic)
            return {
                topic: _members(config),
                "messages": self._messages(topic, config.read_queue_nums) if config else 0,
                "groups": _limited(parts.offsets.groups_of(topic)),
            }

        return Subject({"topic": topic}, state)

    def _messages(self, topic: str, queues: int) -> int:
        """The number of messages in a topic; of very many queues, in the first ones."""
        store = self._parts.store
        return sum(
            store.max_offset(topic, queue_id) - store.min_offset(topic, queue_id)
            for queue_id in range(min(queues, _MAX_QUEUES))
        )

    async def _unused_topics(self, request: Request[NoHeader]) -> Subject:
        """All topics of the store are looked at, so only once: the record says what was there."""
        return Subject({"unused": await on_thread(ADMIN, self._unknown_topics)})

    def _unknown_topics(self) -> list[str]:
        parts = self._parts
        return _limited(
            topic
            for topic in parts.store.topics()
            if topic not in parts.topics
            and not topic.startswith(LIGHT_PREFIX)
            and not is_system_topic(topic, parts.cell.value)
        )

    # ---- groups and offsets

    async def _group(self, request: Request[NoHeader]) -> Subject:
        return self._groups([(await read_json(request, GroupConfig)).group_name])

    async def _group_list(self, request: Request[NoHeader]) -> Subject:
        configs = (await read_json(request, GroupConfigList)).group_config_list
        return self._groups([config.group_name for config in configs])

    def _groups(self, names: list[str]) -> Subject:
        find = self._parts.groups.find
        target = {"group": names[0]} if len(names) == 1 else {"groups": names}
        return Subject(target, lambda: {name: _members(find(name)) for name in names})

    def _deleted_group(self, request: Request[DeleteGroupHeader]) -> Subject:
        group = request.header.group_name
        parts = self._parts

        def state() -> State:
            topics = _limited(parts.offsets.topics_of(group)) if request.header.clean_offset else []
            return {
                group: _members(parts.groups.find(group)),
                **self._offsets(group, topics),
            }

        return Subject({"group": group, "cleanOffset": request.header.clean_offset}, state)

    def _forbidden(self, request: Request[GroupForbiddenHeader]) -> Subject:
        group, topic = request.header.group, request.header.topic
        groups = self._parts.groups
        return Subject(
            {"group": group, "topic": topic},
            lambda: {"readable": groups.is_readable(group, topic)},
        )

    def _reset(self, request: Request[ResetOffsetHeader]) -> Subject:
        header = request.header
        state = lambda: self._offsets(header.group, [header.topic])  # noqa: E731
        return Subject(target_of(header), state)

    def _cloned(self, request: Request[CloneOffsetsHeader]) -> Subject:
        header, offsets = request.header, self._parts.offsets
        topic = (header.topic or "").strip()
        topics = [topic] if topic else _limited(offsets.topics_of(header.src_group))
        return Subject(target_of(header), lambda: self._offsets(header.dest_group, topics))

    def _offsets(self, group: str, topics: Iterable[str]) -> State:
        """Offsets of a group by topic and queue; of many queues, of the first ones."""
        return {
            f"offsets of {topic}": {
                str(queue_id): offset
                for queue_id, offset in islice(
                    self._parts.offsets.of(group, topic).items(), MAX_NAMES
                )
            }
            for topic in topics
        }

    async def _request_mode(self, request: Request[NoHeader]) -> Subject:
        given = await read_json(request, RequestModeSetting)
        modes = self._parts.assignments.modes
        return Subject(
            {"topic": given.topic, "group": given.consumer_group},
            lambda: {"mode": _members(modes.find(given.topic, given.consumer_group))},
        )

    # ---- settings and files

    def _changed_settings(self, request: Request[NoHeader]) -> Subject:
        keys = properties.parse(request.body.decode(errors="replace")).keys()
        secrets = frozenset(key for key in keys if is_secret(key) or key in self._secret_keys())

        def state() -> State:
            texts = self._settings.texts()
            return {key: texts.get(key) for key in keys}

        return Subject({"keys": list(keys)}, state, secrets=secrets)

    def _secret_keys(self) -> set[str]:
        return {
            key
            for cell in (self._parts.cell, self._parts.store_cell)
            for key, option in options_of(type(cell.value)).items()
            if option.secret
        }

    def _read_mode(self, request: Request[Any]) -> Subject:
        cell = self._parts.store_cell
        return Subject(
            target_of(request.header), lambda: {_READ_AHEAD: cell.value.data_read_ahead_enable}
        )

    def _thresholds(self, request: Request[NoHeader]) -> Subject:
        return self._cold_reads(properties.parse(request.body.decode(errors="replace")))

    def _threshold(self, request: Request[NoHeader]) -> Subject:
        return self._cold_reads([request.body.decode(errors="replace")])

    def _cold_reads(self, groups: Iterable[str]) -> Subject:
        cold_reads, names = self._parts.pulls.parts.cold_reads, list(groups)
        return Subject(
            {"groups": names},
            lambda: {f"threshold of {name}": cold_reads.thresholds.get(name) for name in names},
        )

    def _log_range(self, request: Request[NoHeader]) -> Subject:
        """Files are deleted later, by the thread of retention: the record says what was there."""
        store = self._parts.store
        return Subject({"commitLogFrom": store.log.min_offset, "commitLogTo": store.log.written})

    def _filter_function(self, request: Request[FilterFunctionHeader]) -> Subject:
        name, functions = request.header.name, self._parts.filters.functions

        def state() -> State:
            found = functions.find(name)
            if found is None:
                return {name: None}
            digest = hashlib.sha256(found.source.encode()).hexdigest()
            return {name: {"version": found.version, "sha256": digest}}

        return Subject({"filter": name}, state)

    # ---- users and policies

    async def _user(self, request: Request[Any]) -> Subject:
        given = await read_json(request, User)
        members = {
            "userType": given.user_type,
            "userStatus": given.user_status,
            "newPassword": given.password is not None,
        }
        target = target_of(request.header) | members
        return Subject(_given(target), partial(self._account_states, request))

    async def _policies(self, request: Request[Any]) -> Subject:
        given = await read_json(request, Acl)
        policies = msgspec.json.encode(given.policies).decode()
        target = target_of(request.header) | {"policies": policies}
        return Subject(target, partial(self._account_states, request))

    def _account(self, request: Request[Any]) -> Subject:
        target = target_of(request.header)
        if getattr(request.header, "secret_key", None):
            target["newSecretKey"] = True
        return Subject(target, partial(self._account_states, request))

    def _account_states(self, request: Request[Any]) -> State:
        if not isinstance(self._access, ShowsAccounts):
            return {}
        field = _ACCOUNT_FIELDS.get(request.frame.code)
        if field is None:
            return self._access.account_states("")  # what is global
        name = (request.frame.fields or {}).get(field, "")
        return self._access.account_states(name.partition(":")[2] if field == "subject" else name)


def _recalled(request: Request[RecallTimersHeader]) -> Subject:
    def result(reply: Reply) -> State:
        timers = fastjson.decode(reply.body or b"{}", PendingTimers).timers
        return {"recalled": _limited(each.message_id for each in timers)}

    return Subject(target_of(request.header), result=result)


def _members(found: object) -> State | None:
    """The members of a struct; None for what does not exist."""
    if found is None:
        return None
    members: State = msgspec.to_builtins(found)
    return members


def _mapping(found: msgspec.Struct | None) -> str | None:
    """A queue mapping as a text: its map keys are numbers and objects."""
    return None if found is None else fastjson.encode(found).decode()


def _given(target: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in target.items() if value is not None}


def _limited(names: Iterable[str]) -> list[str]:
    found = sorted(names)
    return found if len(found) <= MAX_NAMES else [*found[:MAX_NAMES], f"… {len(found)} in all"]
