"""Send three messages with tracing on; trace_consumer.py consumes them.

python examples/trace_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("trace-producer", name_server=NAME_SERVER, trace=True) as producer:
        for number in range(3):
            message = Message("TraceTopic", f"traced {number}".encode(), keys=f"trace-{number}")
            result = await producer.send(message)
            print(f"sent {result.message_id}")


if __name__ == "__main__":
    asyncio.run(main())
