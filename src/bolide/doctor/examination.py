"""`examine`: collect the facts, have every check judge them, and sort what they find."""

import asyncio
from collections.abc import Iterator

from bolide.admin import AdminClient
from bolide.doctor import (
    broker_checks,
    durability_checks,
    group_checks,
    machine,
    name_server_checks,
    replica_checks,
    settings_checks,
    topic_checks,
)
from bolide.doctor.facts import Cause, ClusterFacts, Unanswered
from bolide.doctor.findings import Finding, Report, in_order, limited
from bolide.doctor.survey import Limits, Survey

_CHECKS = (
    name_server_checks.check,
    broker_checks.check,
    replica_checks.check,
    topic_checks.check,
    group_checks.check,
    settings_checks.check,
    durability_checks.check,
)


async def examine(
    admin: AdminClient, *, cluster: str | None = None, limits: Limits | None = None
) -> Report:
    """Examine the cluster behind the NameServers of a client, and this machine.

    Args:
        admin: an open client; its timeout should not be shorter than `limits.answer`.
        cluster: examine the brokers of this cluster only.
        limits: how long to wait.

    Raises:
        ClusterNotFound: a NameServer answers, and none knows the cluster.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    looking = asyncio.create_task(machine.look())
    try:
        facts = await Survey(admin, cluster=cluster, limits=limits).collect()
        here = await looking
    finally:
        looking.cancel()
        await asyncio.wait([looking])
    found = [*judge(facts), *machine.check(here)]
    reachable = any(_answers(each.info) for each in facts.name_servers)
    return Report(
        findings=in_order(found),
        is_reachable=reachable,
        seconds=round(loop.time() - begun, 3),
    )


def _answers(value: object) -> bool:
    """Whether a server answered, be it with a refusal."""
    silent = {Cause.NOT_CONNECTED, Cause.NO_ANSWER}
    return not isinstance(value, Unanswered) or value.cause not in silent


def judge(facts: ClusterFacts) -> Iterator[Finding]:
    """What all checks find; of each kind that is not in order some, and how many more."""
    return limited(found for check in _CHECKS for found in check(facts))
