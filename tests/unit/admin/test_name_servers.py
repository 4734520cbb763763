"""Key-value configuration, order configurations and write permissions."""

from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import AddWritePermReply, KvReply, WipeWritePermReply
from bolide.protocol.refusals import QueryNotFound
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import cast


def missing(_fields: dict[str, str]) -> Reply:
    raise QueryNotFound("No config item")


@on_loop
async def test_the_queues_of_other_brokers_stay_in_an_order_configuration() -> None:
    async with cast() as stage:
        stage.name_server.answers(RequestCode.GET_KV_CONFIG, KvReply("broker-a:4;broker-b:4"))
        stage.name_server.answers(RequestCode.PUT_KV_CONFIG)

        written = await stage.admin.name_servers.add_order_conf("Orders", "broker-b", 8)

        assert written == "broker-a:4;broker-b:8"
        (fields,) = stage.name_server.fields_of(RequestCode.PUT_KV_CONFIG)
        assert (fields["namespace"], fields["value"]) == ("ORDER_TOPIC_CONFIG", written)


@on_loop
async def test_the_first_broker_makes_an_order_configuration() -> None:
    async with cast() as stage:
        stage.name_server.answers(RequestCode.GET_KV_CONFIG, missing)
        stage.name_server.answers(RequestCode.PUT_KV_CONFIG)

        assert (
            await stage.admin.name_servers.add_order_conf("Orders", "broker-a", 2) == "broker-a:2"
        )


@on_loop
async def test_values_that_are_missing_are_none() -> None:
    async with cast() as stage:
        stage.name_server.answers(RequestCode.GET_KV_CONFIG, missing)
        stage.name_server.answers(RequestCode.GET_KVLIST_BY_NAMESPACE, missing)

        assert await stage.admin.name_servers.find_value("space", "key") is None
        assert await stage.admin.name_servers.values("space") == {}


@on_loop
async def test_write_permissions_are_counted_by_name_server() -> None:
    async with cast() as stage:
        stage.name_server.answers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermReply(7))
        stage.name_server.answers(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermReply(6))
        address = stage.name_server.address

        assert await stage.admin.name_servers.wipe_write_perm("broker-a") == {address: 7}
        assert await stage.admin.name_servers.add_write_perm("broker-a") == {address: 6}


@on_loop
async def test_settings_of_each_name_server_are_told() -> None:
    async with cast() as stage:
        stage.name_server.answers(RequestCode.GET_NAMESRV_CONFIG, b"listenPort=9876\n")
        stage.name_server.answers(RequestCode.UPDATE_NAMESRV_CONFIG)

        found = await stage.admin.name_servers.config()
        await stage.admin.name_servers.update_config({"waitSecondsForService": "5"})

        assert found == {stage.name_server.address: {"listenPort": "9876"}}
        assert stage.name_server.bodies[-1] == b"waitSecondsForService=5\n"
