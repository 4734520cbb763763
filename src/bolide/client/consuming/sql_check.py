"""Ask a broker whether it can filter by an expression, before messages are lost to a bad one."""

import logging

from bolide.client.consuming.subscription import Filter
from bolide.client.instance import ClientInstance
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ClientCheck
from bolide.protocol.codes import RequestCode

log = logging.getLogger(__name__)


async def check_sql(instance: ClientInstance, group: str, wanted: Filter) -> None:
    """Tags are not asked about: every broker knows them.

    Raises:
        Refusal: the broker does not filter by SQL, cannot read the expression, or has no function
            of that name.
        BolideError: there is no broker to ask.
    """
    if wanted.is_by_tags:
        return
    route = await instance.routes.require(wanted.topic)
    check = ClientCheck(
        client_id=instance.client_id,
        group=group,
        subscription_data=wanted.announced(),
        namespace=instance.settings.namespace,
    )
    for broker in route.broker_datas:
        master = broker.broker_addrs.get(0)
        if master is not None:
            body = fastjson.encode(check)
            answer = await instance.call(master, RequestCode.CHECK_CLIENT_CONFIG, body=body)
            if answer.remark:
                log.warning("%s: %s", wanted.topic, answer.remark)
            return
