"""Consumer group commands.

updateSubGroup, updateSubGroupList, getConsumerConfig, deleteSubGroup, setConsumeMode.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from bolide.admin import AdminClient
from bolide.admin.consequences import GroupDeletion
from bolide.admin.servers import address_of
from bolide.cli.admin.confirmation import DryRun, Effect, Yes, confirm
from bolide.cli.admin.each_server import answers_of, ask_each, changed_at
from bolide.cli.admin.output import java_map, java_text
from bolide.cli.admin.session import (
    AsDocument,
    BrokerAddress,
    ClusterName,
    Group,
    NameServer,
    Switch,
    is_true,
    require_one,
    run,
    targets,
)
from bolide.cli.admin.topic_deletion import delete_everywhere
from bolide.cli.admin.topics import parse_attributes
from bolide.cli.command_line import program_name
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line
from bolide.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig, RetryPolicy
from bolide.protocol.bodies.pop import RequestMode
from bolide.protocol.bodies.routes import BrokerRoute
from bolide.protocol.fastjson import BadJson
from bolide.protocol.refusals import GroupNotFound, Refusal


def update_sub_group(
    group: Group,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    consume: Annotated[
        Switch, typer.Option("-s", "--consumeEnable", help="Whether the group may consume.")
    ] = "true",
    from_min: Annotated[
        Switch,
        typer.Option(
            "-m",
            "--consumeFromMinEnable",
            help="Whether the group may start at the minimum offset.",
        ),
    ] = "false",
    broadcast: Annotated[
        Switch,
        typer.Option("-d", "--consumeBroadcastEnable", help="Whether the group may broadcast."),
    ] = "false",
    orderly: Annotated[
        Switch, typer.Option("-o", "--consumeMessageOrderly", help="Whether pops are ordered.")
    ] = "false",
    retry_queues: Annotated[
        int, typer.Option("-q", "--retryQueueNums", min=0, help="Queues of its retry topic.")
    ] = 1,
    retry_times: Annotated[
        int,
        typer.Option(
            "-r", "--retryMaxTimes", help="Retries before a message goes to the dead-letter topic."
        ),
    ] = 16,
    retry_policy: Annotated[
        str | None, typer.Option("-p", "--groupRetryPolicy", help="JSON of a retry policy.")
    ] = None,
    broker_id: Annotated[
        int, typer.Option("-i", "--brokerId", min=0, help="Id of the broker to consume from.")
    ] = 0,
    when_slow: Annotated[
        int,
        typer.Option(
            "-w",
            "--whichBrokerWhenConsumeSlowly",
            min=0,
            help="Id of the broker to consume from when behind.",
        ),
    ] = 1,
    notify: Annotated[
        Switch,
        typer.Option(
            "-a", "--notifyConsumerIdsChanged", help="Notify members of membership changes."
        ),
    ] = "true",
    attributes: Annotated[
        str | None, typer.Option("--attributes", help="Changes: +a=b,+c=d,-e")
    ] = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Create or change a consumer group."""
    require_one(broker, cluster)
    config = GroupConfig(
        group_name=group,
        consume_enable=is_true(consume),
        consume_from_min_enable=is_true(from_min),
        consume_broadcast_enable=is_true(broadcast),
        consume_message_orderly=is_true(orderly),
        retry_queue_nums=retry_queues,
        retry_max_times=retry_times,
        group_retry_policy=_policy(retry_policy),
        broker_id=broker_id,
        which_broker_when_consume_slowly=when_slow,
        notify_consumer_ids_changed_enable=is_true(notify),
        attributes=parse_attributes(attributes or ""),
    )

    async def act(admin: AdminClient) -> None:
        addresses = await changed_at(
            await targets(admin, broker, cluster),
            lambda address: admin.groups.update(address, config),
            None if as_document else "create subscription group to {} success.",
        )
        if as_document:
            print_document({"brokers": addresses, "groupConfig": config})
        else:
            print(config_text(config))

    run(name_server, act)


def delete_sub_group(
    group: Group,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    offsets: Annotated[
        Switch, typer.Option("-r", "--removeOffset", help="Whether to delete its offsets too.")
    ] = "false",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Delete a consumer group.

    With -c its retry and dead-letter topics are deleted too.
    """
    require_one(broker, cluster)
    if dry_run or not yes:

        async def look(admin: AdminClient) -> GroupDeletion:
            addresses = await targets(admin, broker, cluster)
            return await admin.consequences.of_deleting_group(group, addresses)

        found = run(name_server, look)
        with_topics, with_offsets = cluster is not None, is_true(offsets)
        facts = {"removeOffset": with_offsets, "removeTopics": with_topics}
        confirm(
            f"Delete group {group}?",
            _effect(found, with_topics=with_topics, with_offsets=with_offsets),
            _effect_document(found) | facts,
            yes=yes,
            dry_run=dry_run,
            as_document=as_document,
        )

    async def act(admin: AdminClient) -> None:
        addresses = await targets(admin, broker, cluster)
        where = f" in cluster [{cluster}]" if cluster else ""
        done = f"delete subscription group [{group}] from broker [{{}}]{where} success."
        had = await _delete_from_each(
            admin, addresses, group, None if as_document else done, offsets=is_true(offsets)
        )
        if cluster is not None:
            for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
                await delete_everywhere(admin, prefix + group, cluster)
        if len(had) == len(addresses) and not any(had.values()):
            print(f"{program_name()}: no broker had group {group}", file=sys.stderr)
        if as_document:
            print_document({"group": group, "brokers": [at for at, was in had.items() if was]})

    run(name_server, act)


async def _delete_from_each(
    admin: AdminClient, addresses: list[str], group: str, done: str | None, *, offsets: bool
) -> dict[str, bool]:
    """Whether each broker had the group, by address; failures are passed over."""

    async def delete(address: str) -> bool:
        had = await _has(admin, address, group)
        await admin.groups.delete(address, group, offsets=offsets)
        if done is not None:  # as Java's tool does, also if there was no such group
            print(done.replace("{}", address))
        return had

    return await answers_of(addresses, delete, changes=True)


async def _has(admin: AdminClient, address: str, group: str) -> bool:
    try:
        return await admin.groups.find_config(address, group) is not None
    except Refusal:  # who may delete it, but not look
        return True


def _effect(found: GroupDeletion, *, with_topics: bool, with_offsets: bool) -> Effect:
    brokers = ", ".join(found.known_on) or "no broker"
    fate = "are deleted" if with_offsets else "stay, for a group of the same name"
    lines: list[Table | str] = [
        f"group {found.group}, on {brokers}: {found.members} members online",
        f"its offsets {fate}",
    ]
    if with_topics:
        lost = f"{found.retry_messages} messages to retry and {found.dead_letters} dead letters"
        lines.append(f"{lost} are lost with its topics")
    if not found.topics:
        return [*lines, "it has consumed nothing here"]
    table = Table("#Topic", "#Backlog")
    for each in found.topics:
        table.add(each.topic, each.backlog)
    return [*lines, table]


def _effect_document(found: GroupDeletion) -> dict[str, object]:
    return {
        "group": found.group,
        "brokers": found.known_on,
        "members": found.members,
        "retryMessages": found.retry_messages,
        "deadLetters": found.dead_letters,
        "topics": [{"topic": each.topic, "backlog": each.backlog} for each in found.topics],
    }


def update_sub_group_list(
    file: Annotated[
        Path,
        typer.Option("-f", "--filename", help="File with a JSON list of group configurations."),
    ],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Create or change many consumer groups from a file."""
    require_one(broker, cluster)
    configs = _configs_in(file)
    kind = "group" if broker is not None else "subscription group"

    async def act(admin: AdminClient) -> None:
        done = f"submit batch of {kind} config to {{}} success, please check the result later."
        addresses = await changed_at(
            await targets(admin, broker, cluster),
            lambda address: admin.groups.update_all(address, configs),
            None if as_document else done,
        )
        if as_document:
            print_document({"brokers": addresses, "groupConfigs": configs})

    run(name_server, act)


def _configs_in(file: Path) -> list[GroupConfig]:
    """Raises a usage error."""
    try:
        configs = fastjson.decode(file.read_bytes(), list[GroupConfig])
    except BadJson as exc:
        raise typer.BadParameter(f"-f {file} is no list of group configurations: {exc}") from exc
    if not configs:
        raise typer.BadParameter(f"-f {file} is an empty list")
    return configs


def get_consumer_config(
    group: Group, as_document: AsDocument = False, name_server: NameServer = None
) -> None:
    """Show the configuration of a consumer group on each broker."""

    async def act(admin: AdminClient) -> list[tuple[BrokerRoute, GroupConfig]]:
        brokers = {
            address_of(broker): broker
            for _, broker in sorted((await admin.clusters.info()).broker_addr_table.items())
            if broker.broker_addrs
        }
        answers = await ask_each(brokers, partial(_find_config, admin, group))
        found = [
            (brokers[address], config)
            for address, configs in answers.items()
            for config in configs or ()
        ]
        if not found and None not in answers.values():
            raise GroupNotFound(f"no broker has group {group!r}; updateSubGroup creates it")
        return found

    found = run(name_server, act)
    if as_document:
        places = (
            {"clusterName": each.cluster, "brokerName": each.broker_name} for each, _ in found
        )
        configs = (msgspec.to_builtins(config) for _, config in found)
        print_document([place | config for place, config in zip(places, configs, strict=True)])
        return
    for broker, config in found:
        print(f"{_BAR}{java_text(broker.cluster)}:{broker.broker_name}{_BAR}")
        for name, text in _texts(config).items():
            print(one_line(f"{name:<40}=  {'' if text == 'null' else text}"))


async def _find_config(admin: AdminClient, group: str, address: str) -> list[GroupConfig]:
    """The configuration on one broker; empty if it has none."""
    found = await admin.groups.find_config(address, group)
    return [] if found is None else [found]


_BAR = "=" * 29


def config_text(config: GroupConfig) -> str:
    """The configuration in the format of Java's tools."""
    return f"SubscriptionGroupConfig{java_map(_texts(config))}"


def _texts(config: GroupConfig) -> dict[str, str]:
    values = {
        "groupName": config.group_name,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeMessageOrderly": config.consume_message_orderly,
        "retryQueueNums": config.retry_queue_nums,
        "retryMaxTimes": config.retry_max_times,
        "groupRetryPolicy": _policy_text(config.group_retry_policy),
        "brokerId": config.broker_id,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "groupSysFlag": config.group_sys_flag,
        "consumeTimeoutMinute": config.consume_timeout_minute,
        "subscriptionDataSet": config.subscription_data_set,
        "attributes": java_map(config.attributes),
    }
    return {key: java_text(value) for key, value in values.items()}


def _policy_text(policy: RetryPolicy) -> str:
    growing, listed = policy.exponential_retry_policy, policy.customized_retry_policy
    values = {
        "type": policy.type,
        "exponentialRetryPolicy": growing and fastjson.encode(growing).decode(),
        "customizedRetryPolicy": listed and fastjson.encode(listed).decode(),
    }
    texts = {key: java_text(value) for key, value in values.items()}
    return f"GroupRetryPolicy{java_map(texts)}"


def _policy(text: str | None) -> RetryPolicy:
    try:
        return fastjson.decode(text, RetryPolicy) if text else RetryPolicy()
    except BadJson as exc:
        raise typer.BadParameter(f"-p {text!r} is no retry policy: {exc}") from exc


def set_consume_mode(
    topic: Annotated[str, typer.Option("-t", "--topicName", help="Name of the topic.")],
    group: Group,
    mode: Annotated[RequestMode, typer.Option("-m", "--mode", help="Consume mode.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    share: Annotated[
        int,
        typer.Option(
            "-q", "--popShareQueueNum", help="Members that share a queue in pop mode; 0: all."
        ),
    ] = 0,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Set whether consumers with broker-side queue assignment pull or pop."""
    require_one(broker, cluster)

    async def act(admin: AdminClient) -> None:
        addresses = await changed_at(
            await targets(admin, broker, cluster),
            lambda address: admin.pop.set_mode(address, topic, group, mode, share),
            None if as_document else "set consume mode to {} success.",
        )
        if as_document:
            facts = {"topic": topic, "group": group, "mode": mode, "popShareQueueNum": share}
            print_document({"brokers": addresses, **facts})
        else:
            mode_text = f"consume mode[{mode}] popShareQueueNum[{share}]"
            print(f"topic[{topic}] group[{group}] {mode_text}")

    run(name_server, act)
