"""The console's access control, audit and pipelines at brokers of Apache RocketMQ."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.admin import AdminClient
from bolide.arrow.cluster import Connection
from bolide.auth.policies.model import UserStatus, UserType
from bolide.operations.access.brokers import AccessKind, access_overview
from bolide.operations.access.changes import (
    create_user,
    delete_policy,
    delete_user,
    put_policy,
    replace_password,
    update_user,
)
from bolide.operations.access.check import check_access
from bolide.operations.access.plain_accounts import (
    delete_account,
    get_account,
    get_white_lists,
    list_accounts,
    put_account,
    put_white_list,
)
from bolide.operations.access.users import get_user, list_users
from bolide.operations.audit import list_changes
from bolide.operations.cluster import Cluster, Identity
from bolide.operations.errors import BadInput
from bolide.operations.pipelines import list_pipelines
from bolide.protocol.bodies.pipelines import State
from bolide.spark.pipelines.monitoring.reporter import Reporter, new_run
from bolide.spark.pipelines.monitoring.status_topic import StatusTopic
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST, obtain_or_skip
from tests.interop.mqadmin import tools_home
from tests.interop.ours import bolide_namesrv
from tests.interop.policy_cases import ROOT, ROOT_PASSWORD
from tests.interop.test_policies import SETTINGS

# The core pages are tried against RocketMQ by the default suite.
pytestmark = pytest.mark.long

ACL = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: administrator
  secretKey: secret-of-admin
  admin: true
- accessKey: orders-app
  secretKey: secret-of-orders
  admin: false
  topicPerms:
  - Orders=PUB|SUB
  groupPerms:
  - readers=SUB
"""


@asynccontextmanager
async def opened(name_server: str, key: str, secret: str) -> AsyncIterator[Cluster]:
    async with AdminClient(name_server, access_key=key, secret_key=secret) as admin:
        identity = Identity(access_key=key, secret_key=secret)
        yield Cluster(admin=admin, name_servers=name_server, identity=identity)


async def allowed(cluster: Cluster, *questions: tuple[str, str, str]) -> list[bool | None]:
    found = []
    for username, action, resource in questions:
        cluster.forget()
        decision = await check_access.function(
            cluster, username=username, action=action, resource=resource
        )
        assert [broker.evaluated_here for broker in decision.brokers] == [True]
        found.append(decision.allowed)
    return found


def test_users_and_policies_of_a_java_broker(java_bench: Bench, tmp_path: Path) -> None:
    obtain_or_skip(NEWEST)
    with bolide_namesrv(tmp_path) as namesrv:
        java_bench.broker(NEWEST, namesrv.address, **SETTINGS)
        asyncio.run(change_users(namesrv.address))


async def change_users(name_server: str) -> None:
    async with opened(name_server, ROOT, ROOT_PASSWORD) as cluster:
        overview = await access_overview.function(cluster)
        assert (overview.kind, overview.brokers[0].decides) == (AccessKind.USERS, True)
        made = await create_user.function(cluster, username="shop")
        assert made.password is not None
        await put_policy.function(
            cluster, username="shop", resource="Topic:ord*", actions=["Pub", "Sub"]
        )
        await put_policy.function(
            cluster, username="shop", resource="Topic:orders-b", actions=["All"], decision="Deny"
        )
        assert [
            str(each) for each in (await get_user.function(cluster, username="shop")).policies
        ] == [
            "Allow Pub, Sub on Topic:ord*",
            "Deny All on Topic:orders-b",
        ]
        assert await allowed(
            cluster,
            ("shop", "Pub", "Topic:orders-a"),
            ("shop", "Pub", "Topic:orders-b"),
            ("shop", "Delete", "Topic:orders-a"),
            (ROOT, "Delete", "Topic:orders-a"),
        ) == [True, False, False, True]
        await delete_policy.function(cluster, username="shop", resource="Topic:orders-b")
        await update_user.function(
            cluster, username="shop", user_type=UserType.SUPER, status=UserStatus.DISABLE
        )
        await replace_password.function(cluster, username="shop")
        shown = await get_user.function(cluster, username="shop")
        assert (shown.is_super, shown.is_enabled, len(shown.policies)) == (True, False, 1)
        await delete_user.function(cluster, username="shop")
        assert [each.username for each in (await list_users.function(cluster)).items] == [ROOT]
        audit = await list_changes.function(cluster)
        assert (audit.total, audit.console_recorded, audit.failures) == (0, False, [])
        await report_to(cluster)


async def report_to(cluster: Cluster) -> None:
    """A pipeline creates the topic itself, and the console sees it."""
    assert (await list_pipelines.function(cluster)).total == 0
    identity = cluster.identity

    def report() -> None:
        connection = Connection(
            name_server=cluster.name_servers,
            access_key=identity.access_key,
            secret_key=identity.secret_key,
        )
        run = new_run("orders", "a to b", once=True, interval=1.0)
        with Reporter(StatusTopic(connection), run, stop=threading.Event()) as reporter:
            reporter.set_state(State.FINISHED)

    await asyncio.to_thread(report)
    cluster.forget()
    (found,) = (await list_pipelines.function(cluster)).items
    assert (found.name, found.state) == ("orders", State.FINISHED)


@pytest.mark.long
def test_accounts_of_a_java_broker(java_bench: Bench, tmp_path: Path) -> None:
    obtain_or_skip("4.9")
    option = tools_home(tmp_path, "home", "unused")
    (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(ACL)
    with bolide_namesrv(tmp_path / "namesrv") as namesrv:
        java_bench.broker("4.9", namesrv.address, jvm=[option], aclEnable=True)
        asyncio.run(change_accounts(namesrv.address))


async def change_accounts(name_server: str) -> None:
    async with opened(name_server, "administrator", "secret-of-admin") as cluster:
        overview = await access_overview.function(cluster)
        assert overview.kind is AccessKind.ACCOUNTS
        listed = await list_accounts.function(cluster)
        assert [each.access_key for each in listed.items] == ["administrator", "orders-app"]
        assert "secret-of" not in repr(listed)
        columns: dict[str, Any] = {"topics": ["Orders=SUB"], "groups": ["readers=SUB"]}
        kept = await put_account.function(cluster, access_key="orders-app", **columns)
        assert kept.secret_key is None
        made = await put_account.function(cluster, access_key="billing-app", default_topic="PUB")
        assert made.secret_key
        assert (await get_account.function(cluster, access_key="orders-app")).topics == [
            "Orders=SUB"
        ]
        assert await allowed(
            cluster,
            ("orders-app", "Pub", "Topic:Orders"),
            ("orders-app", "Sub", "Topic:Orders"),
            ("billing-app", "Pub", "Topic:Other"),
            ("administrator", "Create", "Topic:Orders"),
            ("nobody", "Pub", "Topic:Orders"),
        ) == [False, True, True, True, False]
        with pytest.raises(BadInput, match="name=DENY"):
            await put_account.function(cluster, access_key="orders-app")
        await delete_account.function(cluster, access_key="billing-app")
        await put_white_list.function(cluster, addresses=["10.9.8.*"])
        (white,) = (await get_white_lists.function(cluster)).brokers
        assert white.addresses == ["10.9.8.*"]
    async with AdminClient(
        name_server, access_key="orders-app", secret_key="secret-of-orders"
    ) as own:  # its secret has stayed
        assert await own.brokers.config(overview.brokers[0].address)
