"""Sign every request with an access key, for clusters that ask who is there.

Bolide's broker does not check signatures yet; brokers of RocketMQ with an ACL do.

python examples/acl_client.py [name server]
"""

import asyncio
import os
import sys

from bolide import LitePullConsumer, Message, Producer
from bolide.client.settings import ClientArguments

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
CLIENT = ClientArguments(
    name_server=NAME_SERVER,
    access_key=os.environ.get("BOLIDE_EXAMPLE_ACCESS_KEY", "RocketMQ"),
    secret_key=os.environ.get("BOLIDE_EXAMPLE_SECRET_KEY", "12345678"),
)


async def main() -> None:
    async with Producer("acl-producer", **CLIENT) as producer:
        result = await producer.send(Message("AclTopic", b"signed"))
        print(f"sent to {result.queue}")

    async with LitePullConsumer("acl-consumer", consume_from="first", **CLIENT) as consumer:
        await consumer.subscribe("AclTopic")
        while not (messages := await consumer.poll()):
            pass
        print(f"polled {messages[0].body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
