"""POP consumption: the broker leases single messages to consumers until they are acknowledged.

The wire protocol is RocketMQ's, the implementation is not. RocketMQ writes every pop and every
acknowledgement as a timer message and reads it back when the invisible time ends. Here `state`
holds the leases of each queue in memory, and every change is one record of an internal topic
(`journal`), written once, flushed and replicated like any message, and read only after a restart.

`checkpointing` commits the lowest unacknowledged offset of each queue as the offset of the group. A
broker that does not read the journal (RocketMQ's included) therefore redelivers from that offset:
duplicates are possible, losses are not. `java_revive_log` takes over the pops recorded by a
RocketMQ broker that used the store before.

`pop` owns all parts and runs their periodic work. `pop_handlers`, `ack_handlers` and `notification`
serve the requests.
"""
