"""Controllers: getControllerMetaData, getControllerConfig, updateControllerConfig,
getSyncStateSet, electMaster, cleanBrokerMetadata.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from bolide.admin import AdminClient
from bolide.admin.controllers import Election
from bolide.admin.errors import NotControlled
from bolide.cli.admin.confirmation import DryRun, Yes, confirm
from bolide.cli.admin.each_server import Interval, answers_of, applicable, repeated
from bolide.cli.admin.name_servers import print_settings
from bolide.cli.admin.output import java_text, print_field
from bolide.cli.admin.session import AsDocument, NameServer, run
from bolide.cli.documents import print_document
from bolide.cli.tables import Table
from bolide.logs import one_line
from bolide.protocol.bodies.controller import Replica, Replicas

_NONE = "the server is no controller; RocketMQ has controllers since 5.0"

Controller = Annotated[
    str,
    typer.Option(
        "-a", "--controllerAddress", help="A controller, host:port; the leader is found by it."
    ),
]
Controllers = Annotated[
    str,
    typer.Option("-a", "--controllerAddress", help="Controllers, host:port;host:port."),
]
BrokerName = Annotated[
    str, typer.Option("-bn", "--brokerName", help="Name of the broker group, such as broker-a.")
]


def get_controller_meta_data(
    controller: Controller,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show which controller leads, and the members of the quorum."""
    address = _first(controller)
    found = run(name_server, lambda admin: applicable(admin.controllers.metadata(address), _NONE))
    peers = [peer for peer in (found.peers or "").split(";") if peer]
    if as_document:
        print_document(
            {
                "group": found.group,
                "controllerLeaderId": found.controller_leader_id,
                "controllerLeaderAddress": found.controller_leader_address,
                "isLeader": found.is_leader,
                "peers": peers,
            }
        )
        return
    print()
    print_field("ControllerGroup", found.group)
    print_field("ControllerLeaderId", found.controller_leader_id)
    print_field("ControllerLeaderAddress", found.controller_leader_address)
    for peer in peers:
        print_field("Peer:", peer)


def get_controller_config(
    controllers: Controllers,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the settings of controllers."""

    async def act(admin: AdminClient) -> dict[str, dict[str, str]]:
        asked = answers_of(_addresses(controllers), admin.controllers.config)
        return await applicable(asked, _NONE)

    answers = run(name_server, act)
    if as_document:
        print_document(answers)
    else:
        for address, settings in answers.items():
            print(f"============{address}============")
            print_settings(settings)


def update_controller_config(
    controllers: Controllers,
    key: Annotated[str, typer.Option("-k", "--key", help="Name of the setting.")],
    value: Annotated[str, typer.Option("-v", "--value", help="New value.")],
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Change a setting of running controllers; name all of them, each has its own settings."""

    async def act(admin: AdminClient) -> dict[str, None]:
        asked = answers_of(
            _addresses(controllers),
            lambda at: admin.controllers.update_config(at, {key: value}),
            changes=True,
        )
        return await applicable(asked, _NONE)

    answers = run(name_server, act)
    if as_document:
        print_document({"controllers": [*answers], key: value})
    else:
        print(f"update controller config success![{', '.join(answers)}]")
        print(one_line(f"{key} : {value}"))


def get_sync_state_set(
    controller: Controller,
    broker_name: Annotated[
        str | None, typer.Option("-b", "--brokerName", help="Name of one broker group.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="All broker groups of this cluster.")
    ] = None,
    interval: Interval = None,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Show the master, the epoch and the sync-state set of broker groups."""
    if (broker_name is None) == (cluster is None):
        raise typer.BadParameter("give either -b, one broker group, or -c, a cluster")
    address = _first(controller)

    async def act(admin: AdminClient) -> None:
        if broker_name is not None:
            names = [broker_name]
        else:
            assert cluster is not None
            names = [each.broker_name for each in await admin.clusters.brokers(cluster)]

        async def show() -> None:
            found = await _groups(admin, address, names)
            if as_document:
                print_document([_group_document(name, group) for name, group in found.items()])
            else:
                for name, group in found.items():
                    _print_group(name, group)

        await repeated(interval, show)

    run(name_server, act)


async def _groups(admin: AdminClient, controller: str, names: Iterable[str]) -> dict[str, Replicas]:
    """Broker groups by name; raises NotControlled if the controllers know none of them."""
    wanted = [*names]
    asked = admin.controllers.sync_state_sets(controller, wanted)
    found = (await applicable(asked, _NONE)).replicas_info_table
    if not found:
        raise NotControlled(wanted, controller)
    return dict(sorted(found.items()))


def _print_group(name: str, group: Replicas) -> None:
    print()
    print_field("brokerName", name)
    print_field("MasterBrokerId", group.master_broker_id)
    print_field("MasterAddr", group.master_address)
    print_field("MasterEpoch", group.master_epoch)
    print_field("SyncStateSetEpoch", group.sync_state_set_epoch)
    print_field("SyncStateSetNums", len(group.in_sync_replicas))
    for replica in group.in_sync_replicas:
        print(f"\nInSyncReplica:\t{_replica_text(replica)}")
    for replica in group.not_in_sync_replicas:
        print(f"\nNotInSyncReplica:\t{_replica_text(replica)}")


def _replica_text(replica: Replica) -> str:
    return one_line(
        f"ReplicaIdentity{{brokerName='{replica.broker_name}', brokerId={replica.broker_id}, "
        f"brokerAddress='{java_text(replica.broker_address)}', alive={java_text(replica.alive)}}}"
    )


def _group_document(name: str, group: Replicas) -> dict[str, object]:
    members = [(replica, True) for replica in group.in_sync_replicas]
    members += [(replica, False) for replica in group.not_in_sync_replicas]
    return {
        "brokerName": name,
        "masterBrokerId": group.master_broker_id,
        "masterAddress": group.master_address,
        "masterEpoch": group.master_epoch,
        "syncStateSetEpoch": group.sync_state_set_epoch,
        "replicas": [_member_document(group, *member) for member in members],
    }


def _member_document(group: Replicas, replica: Replica, in_sync: bool) -> dict[str, object]:
    return {
        "brokerId": replica.broker_id,
        "brokerAddress": replica.broker_address,
        "alive": replica.alive,
        "inSync": in_sync,
        "master": replica.broker_id == group.master_broker_id,
    }


def elect_master(
    controller: Controller,
    broker_id: Annotated[
        int, typer.Option("-b", "--brokerId", min=0, help="Id of the member that becomes master.")
    ],
    broker_name: BrokerName,
    cluster: Annotated[
        str, typer.Option("-c", "--clusterName", help="Cluster of the broker group.")
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Make a member of a broker group its master.

    The group refuses messages for a moment. A member outside of the sync-state set lacks messages,
    which are lost with its election; controllers elect it only if no member of the set is alive.
    """
    address = _first(controller)
    group = _one_group(name_server, address, broker_name)
    members = {each.broker_id: each for each in _members(group)}
    if broker_id not in members:
        known = ", ".join(map(str, sorted(members)))
        raise typer.BadParameter(f"-b {broker_id}: {broker_name} has the members {known}")
    wanted = members[broker_id]
    safe = broker_id in {each.broker_id for each in group.in_sync_replicas}
    plan = {
        "brokerName": broker_name,
        "masterBrokerId": group.master_broker_id,
        "masterAddress": group.master_address,
        "newMasterBrokerId": broker_id,
        "newMasterAddress": wanted.broker_address,
        "alive": wanted.alive,
        "inSync": safe,
    }
    confirm(
        f"Make member {broker_id} the master of {broker_name}?",
        _election_text(plan),
        plan,
        yes=yes,
        dry_run=dry_run,
        as_document=as_document,
    )
    result = run(
        name_server,
        lambda admin: admin.controllers.elect(address, cluster, broker_name, broker_id),
    )
    if as_document:
        print_document({"clusterName": cluster, "brokerName": broker_name} | _elected(result))
    else:
        _print_election(cluster, broker_name, result)


def _election_text(plan: Mapping[str, object]) -> str:
    old = "no master"
    if plan["masterBrokerId"] is not None:
        old = f"master {plan['masterBrokerId']} at {plan['masterAddress']}"
    text = (
        f"broker group {plan['brokerName']}: {old} is replaced by member"
        f" {plan['newMasterBrokerId']} at {plan['newMasterAddress']}, which is"
        f" {'alive' if plan['alive'] else 'not alive'} and"
    )
    if plan["inSync"]:
        return one_line(f"{text} in the sync-state set: it has every acknowledged message")
    return one_line(f"{text} not in the sync-state set: acknowledged messages may be lost")


def _elected(result: Election) -> dict[str, object]:
    group = result.members.broker_member_group
    addresses = group.broker_addrs if group is not None else {}
    return {
        "masterBrokerId": result.master.master_broker_id,
        "masterAddress": result.master.master_address,
        "masterEpoch": result.master.master_epoch,
        "syncStateSetEpoch": result.master.sync_state_set_epoch,
        "brokerAddrs": {str(key): at for key, at in sorted(addresses.items())},
    }


def _print_election(cluster: str, broker_name: str, result: Election) -> None:
    elected = _elected(result)
    print()
    print_field("ClusterName", cluster)
    print_field("BrokerName", broker_name)
    print_field("BrokerMasterAddr", elected["masterAddress"])
    print_field("MasterEpoch", elected["masterEpoch"])
    print_field("SyncStateSetEpoch", elected["syncStateSetEpoch"])
    addresses = elected["brokerAddrs"]
    assert isinstance(addresses, dict)
    for broker_id, address in addresses.items():
        print(f"\t#Broker\t{broker_id}\t{one_line(str(address))}")


def clean_broker_metadata(
    controller: Controller,
    broker_name: BrokerName,
    broker_ids: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--brokerControllerIdsToClean",
            help="Ids of the members, 1;2;3. Without it: the whole group.",
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="Cluster of the broker group.")
    ] = None,
    living: Annotated[
        bool, typer.Option("-l", "--cleanLivingBroker", help="Also members that are alive.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_document: AsDocument = False,
    name_server: NameServer = None,
) -> None:
    """Have the controllers forget members of a broker group that do not come back.

    A member that was forgotten does not join again with its old id.
    """
    if cluster is None and not living:
        raise typer.BadParameter("-c is needed, unless -l also removes members that are alive")
    ids = _ids(broker_ids)
    address = _first(controller)
    group = _one_group(name_server, address, broker_name)
    in_set = {each.broker_id for each in group.in_sync_replicas}
    members = [each for each in _members(group) if not ids or each.broker_id in ids]
    if unknown := ids - {each.broker_id for each in members}:
        numbers = ", ".join(map(str, sorted(unknown)))
        raise typer.BadParameter(f"-b: {broker_name} has no member {numbers}")
    table = Table("#BrokerId", "#BrokerAddr", "#Alive", "#InSync", "#Master")
    documents = [_member_document(group, each, each.broker_id in in_set) for each in members]
    for each in documents:
        flags = [java_text(each[name]) for name in ("alive", "inSync", "master")]
        table.add(each["brokerId"], java_text(each["brokerAddress"]), *flags)
    confirm(
        _cleaning_question(broker_name, in_set, {each.broker_id for each in members}),
        table,
        documents,
        yes=yes,
        dry_run=dry_run,
        as_document=as_document,
    )
    run(
        name_server,
        lambda admin: admin.controllers.clean_broker_metadata(
            address, cluster, broker_name, broker_ids=sorted(ids), living=living
        ),
    )
    if as_document:
        print_document({"brokerName": broker_name, "removed": documents})
    else:
        print(one_line(f"clear broker {broker_name} metadata from controller success! "))


def _cleaning_question(broker_name: str, in_set: set[int], removed: set[int]) -> str:
    if not in_set - removed:
        return (
            f"Forget these members of {broker_name}? No other has every acknowledged message, so"
            " that no master is elected any more unless electMaster designates one."
        )
    return f"Forget these members of {broker_name}?"


def _one_group(name_server: str | None, controller: str, broker_name: str) -> Replicas:
    async def act(admin: AdminClient) -> Replicas:
        return (await _groups(admin, controller, [broker_name]))[broker_name]

    return run(name_server, act)


def _members(group: Replicas) -> list[Replica]:
    return [*group.in_sync_replicas, *group.not_in_sync_replicas]


def _ids(text: str | None) -> set[int]:
    words = [word.strip() for word in (text or "").split(";") if word.strip()]
    if not all(word.isdecimal() and word.isascii() for word in words):
        raise typer.BadParameter(f"-b {text!r} is not a list of ids such as 1;2;3")
    return {int(word) for word in words}


def _addresses(text: str) -> list[str]:
    found = [part.strip() for part in text.split(";") if part.strip()]
    if not found:
        raise typer.BadParameter("-a names no controller; give host:port")
    return found


def _first(text: str) -> str:
    return _addresses(text)[0]
