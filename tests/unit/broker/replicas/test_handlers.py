"""Metadata that replicas copy, over a real connection."""

import threading

import pytest

from bolide.broker.replicas.handlers import OffsetCopyHandlers
from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.offsets import ConsumerOffsets
from bolide.protocol.codes import RequestCode
from bolide.store import tables as store_tables
from bolide.store.tables import DelayOffsets
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables, served
from tests.support.threads import note_threads


@on_loop
async def test_consumer_offsets_are_returned_with_quoted_keys_for_slaves_of_rocketmq(
    tables: BrokerTables,
) -> None:
    tables.offsets.commit("g", "T", 3, 5)
    handlers = OffsetCopyHandlers(offsets=tables.offsets, delay_offsets=DelayOffsets)
    async with served(tables, handlers) as caller:
        answer = await caller.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
    told = fastjson.decode(answer.body, ConsumerOffsets)
    assert told.offset_table == {"T@g": {3: 5}}
    assert told.data_version.counter == 1
    assert b'"T@g":{"3":5}' in answer.body


@on_loop
async def test_delay_offsets_are_returned_as_of_the_request(tables: BrokerTables) -> None:
    known = DelayOffsets(data_version=DataVersion(counter=4))
    handlers = OffsetCopyHandlers(offsets=tables.offsets, delay_offsets=lambda: known)
    async with served(tables, handlers) as caller:
        known.offset_table[3] = 17
        answer = await caller.call(RequestCode.GET_ALL_DELAY_OFFSET)
    assert fastjson.decode(answer.body, DelayOffsets) == known
    assert b'{"3":17}' in answer.body


@on_loop
async def test_consumer_offsets_are_written_on_another_thread(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = note_threads(monkeypatch, store_tables, "_topics_by_group")
    handlers = OffsetCopyHandlers(offsets=tables.offsets, delay_offsets=DelayOffsets)
    async with served(tables, handlers) as caller:
        await caller.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
