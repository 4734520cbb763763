"""Read a topic as an Arrow table and sum a field of its bodies.

python examples/arrow_read.py [name server]
"""

import sys

import pyarrow as pa

from bolide.arrow import read_topic
from bolide.sync import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


def main() -> None:
    with Producer("arrow-producer", name_server=NAME_SERVER) as producer:
        for number in range(12):
            body = f'{{"city": "{["Oslo", "Rome"][number % 2]}", "rain": {number}}}'
            producer.send(Message("ArrowTopic", body.encode(), keys=[f"day-{number}"]))

    weather = read_topic(
        "ArrowTopic", name_server=NAME_SERVER, start="-1h", value_schema="city string, rain int"
    )
    rain = pa.Table.from_struct_array(weather.to_table()["value"])
    totals = rain.group_by("city").aggregate([("rain", "sum")]).sort_by("city")
    for row in totals.to_pylist():
        print(f"{row['city']}: {row['rain_sum']}")


if __name__ == "__main__":
    main()
