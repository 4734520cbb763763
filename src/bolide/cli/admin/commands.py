"""The table of admin commands by subject: RocketMQ's name, function and example of each."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from bolide.cli.admin import (
    audit,
    brokers,
    clusters,
    cold_reads,
    compaction_log,
    consumers,
    controllers,
    dead_letters,
    drain,
    exports,
    groups,
    held_messages,
    messages,
    name_servers,
    offsets,
    parked,
    plain_acl,
    policies,
    replicas,
    rocksdb_and_lite,
    running_consumers,
    scans,
    send_checks,
    sending,
    static_topics,
    statistics,
    topic_deletion,
    topic_tables,
    topics,
    traces,
    upkeep,
    users,
)
from bolide.cli.admin.common_options import add_common_options
from bolide.cli.tls_options import add_tls_options

Verb = Callable[..., None]


class Command(NamedTuple):
    verb: Verb
    example: str
    changes: bool


def reads(verb: Verb, example: str) -> Command:
    """A command that only looks, so that `--watch` can repeat it."""
    return Command(verb, example, changes=False)


def changes(verb: Verb, example: str) -> Command:
    return Command(verb, example, changes=True)


_SECTIONS: dict[str, dict[str, Command]] = {
    "Topics": {
        "updateTopic": changes(topics.update_topic, "-c DefaultCluster -t Orders -r 8 -w 8"),
        "updateTopicPerm": changes(topics.update_topic_perm, "-c DefaultCluster -t Orders -p 4"),
        "deleteTopic": changes(topic_deletion.delete_topic, "-c DefaultCluster -t Orders"),
        "topicList": reads(topics.topic_list, "-c"),
        "topicRoute": reads(topics.topic_route, "-t Orders -l"),
        "topicStatus": reads(topics.topic_status, "-t Orders"),
        "updateTopicList": changes(
            topic_tables.update_topic_list, "-c DefaultCluster -f topics.json"
        ),
        "topicClusterList": reads(topic_tables.topic_cluster_list, "-t Orders"),
        "updateOrderConf": changes(topics.update_order_conf, "-t Orders -m put -v broker-a:4"),
        "updateStaticTopic": changes(
            static_topics.update_static_topic, "-c DefaultCluster -t Orders -qn 8"
        ),
        "remappingStaticTopic": changes(
            static_topics.remapping_static_topic, "-b broker-a,broker-b -t Orders"
        ),
    },
    "Consumer groups": {
        "updateSubGroup": changes(groups.update_sub_group, "-c DefaultCluster -g billing -r 3"),
        "updateSubGroupList": changes(
            groups.update_sub_group_list, "-c DefaultCluster -f groups.json"
        ),
        "getConsumerConfig": reads(groups.get_consumer_config, "-g billing"),
        "deleteSubGroup": changes(groups.delete_sub_group, "-c DefaultCluster -g billing -r true"),
        "setConsumeMode": changes(
            groups.set_consume_mode, "-c DefaultCluster -t Orders -g billing -m POP"
        ),
        "consumerProgress": reads(consumers.consumer_progress, "-g billing"),
        "consumerStatus": reads(running_consumers.consumer_status, "-g billing -s"),
        "consumerConnection": reads(consumers.consumer_connection, "-g billing"),
        "allocateMQ": reads(consumers.allocate_mq, "-t Orders -i 10.0.0.1,10.0.0.2"),
        "startMonitoring": changes(statistics.start_monitoring, "--interval 10"),
        "resetOffsetByTime": changes(offsets.reset_offset_by_time, "-g billing -t Orders -s now"),
        "skipAccumulatedMessage": changes(
            offsets.skip_accumulated_message, "-g billing -t Orders --dry-run"
        ),
        "cloneGroupOffset": changes(
            offsets.clone_group_offset, "-s billing -d billing-2 -t Orders"
        ),
        "listDeadLetters": reads(dead_letters.list_dead_letters, "-g billing"),
        "redriveDeadLetters": changes(
            dead_letters.redrive_dead_letters, "-g billing -t Orders --dry-run"
        ),
        "listParked": reads(parked.list_parked, "-g billing"),
        "resumeParked": changes(parked.resume_parked, "-g billing -k order-1"),
        "deadLetterParked": changes(parked.dead_letter_parked, "-g billing -k order-1"),
    },
    "Producers": {
        "producer": reads(consumers.producer, "-b 127.0.0.1:10911"),
        "producerConnection": reads(consumers.producer_connection, "-g shop -t Orders"),
    },
    "Messages": {
        "sendMessage": changes(sending.send_message, '-t Orders -p "one book" -k order-1 -c paid'),
        "checkMsgSendRT": changes(sending.check_msg_send_rt, "-t Orders -a 20"),
        "consumeMessage": reads(scans.consume_message, "-t Orders -c 10"),
        "printMsg": reads(scans.print_msg, "-t Orders -s paid -b 2026-01-31#12:00:00:000 -d false"),
        "printMsgByQueue": reads(
            scans.print_msg_by_queue, "-t Orders -a broker-a -i 0 -p true -f true"
        ),
        "queryMsgById": reads(
            messages.query_msg_by_id, "-t Orders -i 7F00000100002A9F0000000000000000 -f UTF-8"
        ),
        "queryMsgByKey": reads(messages.query_msg_by_key, "-t Orders -k order-1"),
        "queryMsgByUniqueKey": reads(
            messages.query_msg_by_unique_key, "-t Orders -i 7F0000010C7D18B4AAC2194D5E8C0000"
        ),
        "queryMsgByOffset": reads(
            scans.query_msg_by_offset, "-t Orders -b broker-a -i 0 -o 0 -f UTF-8"
        ),
        "queryCq": reads(scans.query_cq, "-t Orders -q 0 -i 0 -b 127.0.0.1:10911"),
        "queryMsgTraceById": reads(
            traces.query_msg_trace_by_id, "-i 7F0000010C7D18B4AAC2194D5E8C0000"
        ),
        "listTimers": reads(held_messages.list_timers, "-c DefaultCluster -t Orders"),
        "recallMessage": changes(
            held_messages.recall_message, "-c DefaultCluster -t Orders -k order-1"
        ),
        "openTransactions": reads(held_messages.open_transactions, "-c DefaultCluster -g shop"),
        "discardedTransactions": reads(held_messages.discarded_transactions, "-c DefaultCluster"),
        "resolveTransaction": changes(
            held_messages.resolve_transaction, "-i 7F00000100002A9F0000000000000000 --commit"
        ),
        "resumeTransaction": changes(
            held_messages.resume_transaction, "-i 7F00000100002A9F0000000000000000"
        ),
    },
    "Clusters and brokers": {
        "clusterList": reads(clusters.cluster_list, "-m"),
        "brokerStatus": reads(brokers.broker_status, "-b 127.0.0.1:10911"),
        "getBrokerConfig": reads(brokers.get_broker_config, "-b 127.0.0.1:10911"),
        "updateBrokerConfig": changes(
            brokers.update_broker_config, "-b 127.0.0.1:10911 -k fileReservedTime -v 48"
        ),
        "drain": changes(drain.drain, "-b 127.0.0.1:10911 --timeout 600"),
        "brokerConsumeStats": reads(statistics.broker_consume_stats, "-b 127.0.0.1:10911 -l 1000"),
        "statsAll": reads(statistics.stats_all, "-a"),
        "sendMsgStatus": changes(send_checks.send_msg_status, "-b broker-a -c 10"),
        "clusterRT": changes(send_checks.cluster_rt, "-c DefaultCluster --rounds 1"),
        "cleanExpiredCQ": changes(upkeep.clean_expired_cq, "-c DefaultCluster"),
        "cleanUnusedTopic": changes(upkeep.clean_unused_topic, "-c DefaultCluster --dry-run"),
        "deleteExpiredCommitLog": changes(upkeep.delete_expired_commit_log, "-c DefaultCluster"),
        "setCommitLogReadAheadMode": changes(
            upkeep.set_commit_log_read_ahead_mode, "-b 127.0.0.1:10911 -m 1"
        ),
        "getColdDataFlowCtrInfo": reads(
            cold_reads.get_cold_data_flow_ctr_info, "-b 127.0.0.1:10911"
        ),
        "updateColdDataFlowCtrGroupConfig": changes(
            cold_reads.update_cold_data_flow_ctr_group_config,
            "-c DefaultCluster -g billing -v 8388608",
        ),
        "removeColdDataFlowCtrGroupConfig": changes(
            cold_reads.remove_cold_data_flow_ctr_group_config, "-c DefaultCluster -g billing"
        ),
        "switchTimerEngine": changes(upkeep.switch_timer_engine, "-b 127.0.0.1:10911 -e F"),
        "addBroker": changes(upkeep.add_broker, "-c 127.0.0.1:10811 -b /etc/broker-a.conf"),
        "removeBroker": changes(
            upkeep.remove_broker, "-c 127.0.0.1:10811 -b DefaultCluster:broker-a:0"
        ),
        "audit": reads(audit.audit, "-c DefaultCluster --since 1h"),
        "updateFilter": changes(
            brokers.update_filter, "-c DefaultCluster -f big-orders -s big_orders.py"
        ),
        "deleteFilter": changes(brokers.delete_filter, "-c DefaultCluster -f big-orders"),
        "listFilters": reads(brokers.list_filters, "-c DefaultCluster"),
    },
    "Replicas and controllers": {
        "haStatus": reads(replicas.ha_status, "-c DefaultCluster"),
        "getBrokerEpoch": reads(replicas.get_broker_epoch, "-b broker-a"),
        "getSyncStateSet": reads(controllers.get_sync_state_set, "-a 127.0.0.1:9878 -b broker-a"),
        "resetMasterFlushOffset": changes(
            upkeep.reset_master_flush_offset, "-b 127.0.0.1:10911 -o 0"
        ),
        "getControllerMetaData": reads(controllers.get_controller_meta_data, "-a 127.0.0.1:9878"),
        "getControllerConfig": reads(controllers.get_controller_config, "-a 127.0.0.1:9878"),
        "updateControllerConfig": changes(
            controllers.update_controller_config,
            "-a 127.0.0.1:9878 -k enableElectUncleanMaster -v false",
        ),
        "electMaster": changes(
            controllers.elect_master, "-a 127.0.0.1:9878 -b 2 -bn broker-a -c DefaultCluster"
        ),
        "cleanBrokerMetadata": changes(
            controllers.clean_broker_metadata,
            "-a 127.0.0.1:9878 -b 3 -bn broker-a -c DefaultCluster",
        ),
    },
    "NameServers": {
        "getNamesrvConfig": reads(name_servers.get_namesrv_config, "--output yaml"),
        "updateNamesrvConfig": changes(
            name_servers.update_namesrv_config, "-k orderMessageEnable -v true"
        ),
        "updateKvConfig": changes(name_servers.update_kv_config, "-s SHOP -k currency -v EUR"),
        "deleteKvConfig": changes(name_servers.delete_kv_config, "-s SHOP -k currency"),
        "wipeWritePerm": changes(name_servers.wipe_write_perm, "-b broker-a"),
        "addWritePerm": changes(name_servers.add_write_perm, "-b broker-a"),
    },
    "Exports and files": {
        "exportMetadata": changes(exports.export_metadata, "-c DefaultCluster -f export"),
        "exportConfigs": changes(exports.export_configs, "-c DefaultCluster -f export"),
        "exportMetrics": changes(exports.export_metrics, "-c DefaultCluster -f export"),
        "exportPopRecord": changes(exports.export_pop_record, "-c DefaultCluster -d true"),
        "dumpCompactionLog": reads(
            compaction_log.dump_compaction_log,
            "-f store/compaction/compactionLog/Prices/0/00000000000000000000",
        ),
    },
    "Users and permissions": {
        "createUser": changes(users.create_user, "-c DefaultCluster -u shop -t Normal"),
        "updateUser": changes(users.update_user, "-c DefaultCluster -u shop -s disable"),
        "deleteUser": changes(users.delete_user, "-c DefaultCluster -u shop"),
        "getUser": reads(users.get_user, "-c DefaultCluster -u shop"),
        "listUser": reads(users.list_user, "-c DefaultCluster"),
        "copyUser": changes(users.copy_user, "-f 127.0.0.1:10911 -t 127.0.0.1:20911 -u shop"),
        "createAcl": changes(
            policies.create_acl, "-c DefaultCluster -s User:shop -r Topic:Orders -a Pub -d Allow"
        ),
        "updateAcl": changes(
            policies.update_acl,
            "-c DefaultCluster -s User:shop -r Topic:Orders -a Pub,Sub -d Allow -i 10.0.0.0/8",
        ),
        "deleteAcl": changes(policies.delete_acl, "-c DefaultCluster -s User:shop -r Topic:Orders"),
        "getAcl": reads(policies.get_acl, "-c DefaultCluster -s User:shop"),
        "listAcl": reads(policies.list_acl, "-c DefaultCluster -s shop"),
        "copyAcl": changes(policies.copy_acl, "-f 127.0.0.1:10911 -t 127.0.0.1:20911 -s User:shop"),
        "exportAcl": reads(policies.export_acl, "-b 127.0.0.1:10911 -f access.yml"),
        "applyAcl": changes(policies.apply_acl, "-b 127.0.0.1:10911 -f access.yml --dry-run"),
        "whoami": reads(users.who_am_i, "-b 127.0.0.1:10911"),
        "can-i": reads(users.can_i, "-b 127.0.0.1:10911 -r Topic:Orders -a Pub"),
    },
    "Accounts of plain_acl.yml (ACL 1.0)": {
        "updateAclConfig": changes(
            plain_acl.update_acl_config,
            '-c DefaultCluster -a orders-app -s - -t "Orders=PUB|SUB" -g billing=SUB',
        ),
        "deleteAclConfig": changes(plain_acl.delete_acl_config, "-c DefaultCluster -a orders-app"),
        "clusterAclConfigVersion": reads(plain_acl.cluster_acl_config_version, "-c DefaultCluster"),
        "updateGlobalWhiteAddr": changes(
            plain_acl.update_global_white_addr, '-c DefaultCluster -g "10.10.103.*,192.168.0.*"'
        ),
        "getAclConfig": reads(plain_acl.get_acl_config, "-c DefaultCluster"),
    },
    "RocksDB and light topics, not applicable": {
        "checkRocksdbCqWriteProgress": reads(
            rocksdb_and_lite.check_rocksdb_cq_write_progress, "-c DefaultCluster"
        ),
        "rocksDBConfigToJson": reads(rocksdb_and_lite.rocksdb_config_to_json, "-c DefaultCluster"),
        "exportMetadataInRocksDB": reads(
            rocksdb_and_lite.export_metadata_in_rocksdb, "-p store/config -t topics"
        ),
        "getBrokerLiteInfo": reads(rocksdb_and_lite.get_broker_lite_info, "-c DefaultCluster"),
        "getParentTopicInfo": reads(rocksdb_and_lite.get_parent_topic_info, "-p Orders"),
        "getLiteTopicInfo": reads(rocksdb_and_lite.get_lite_topic_info, "-p Orders -l order-1"),
        "getLiteClientInfo": reads(
            rocksdb_and_lite.get_lite_client_info, "-p Orders -g billing -c CLIENT"
        ),
        "getLiteGroupInfo": reads(rocksdb_and_lite.get_lite_group_info, "-p Orders -g billing"),
        "triggerLiteDispatch": changes(
            rocksdb_and_lite.trigger_lite_dispatch, "-p Orders -g billing"
        ),
    },
}


COMMANDS: dict[str, Command] = {
    name: command for section in _SECTIONS.values() for name, command in section.items()
}


def load() -> dict[str, Any]:
    """The commands, as the commands of a group."""
    return {name: load_one(name) for name in [*COMMANDS, "help"]}


def load_one(name: str) -> Any:
    """One command, by its exact name: making all of them takes longer than most run."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    if name == "help":
        app.command("help")(show_help)
        return typer.main.get_command(app)
    verb, example, changes_something = COMMANDS[name]
    # \b prevents click from wrapping the line.
    epilog = f"\b\nExample: mqadmin {name} -n 127.0.0.1:9876 {example}"
    app.command(name, epilog=epilog)(verb)
    command = typer.main.get_command(app)
    add_common_options(command, repeats=not changes_something)
    return add_tls_options({name: command})[name]


def summaries() -> dict[str, dict[str, str]]:
    """What each command does, by subject and name, in the order of `--help`."""
    found = {
        title: {name: _summary(command.verb) for name, command in section.items()}
        for title, section in _SECTIONS.items()
    }
    return found | {"Help": {"help": _summary(show_help)}}


def _summary(verb: Verb) -> str:
    return (verb.__doc__ or "").partition("\n")[0]


def show_help(
    ctx: typer.Context,
    command: Annotated[str | None, typer.Argument(help="Name of a command.")] = None,
) -> None:
    """Show the help of a command."""
    parent = ctx.parent
    assert parent is not None
    if command is None:
        print(parent.get_help())
        return
    group: Any = parent.command
    found = group.get_command(parent, command)
    if found is None:
        raise typer.BadParameter(f"there is no command {command!r}; see `{parent.command_path}`")
    print(found.get_help(type(parent)(found, info_name=found.name, parent=parent)))
