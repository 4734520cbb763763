from pathlib import Path

from bolide import Message
from bolide.client.producer.producer import Producer
from bolide.client.producer.send_request import make_ids
from bolide.protocol.batch import encode_batch
from tests.support.aio import on_loop
from tests.support.own_cluster import create_topic, own_cluster
from tests.support.topic_contents import contents


def test_ids_made_together_are_all_different_and_of_the_usual_form() -> None:
    ids = make_ids(65_536)
    assert len(set(ids)) == 65_536
    assert {len(each) for each in ids} == {32}


@on_loop
async def test_a_batch_encoded_by_its_sender_is_stored_as_it_is(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        async with Producer("bulk", name_server=cluster.address) as producer:
            await create_topic(producer, "T", 2)
            queue = (await producer.fetch_publish_queues("T"))[1]
            ids = make_ids(3)
            body = encode_batch(
                Message("T", b"%d" % number, keys=f"k{number}").with_properties({"UNIQ_KEY": own})
                for number, own in enumerate(ids)
            )
            result = await producer.send_encoded("T", body, queue=queue)
        stored = (await contents(cluster.address, "T"))[queue]
    assert (result.queue, result.queue_offset) == (queue, 0)
    assert [(message.body, message.keys) for message in stored] == [
        (b"0", ("k0",)),
        (b"1", ("k1",)),
        (b"2", ("k2",)),
    ]
    assert [message.message_id for message in stored] == ids
