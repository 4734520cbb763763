"""POP: messages are given away one by one, invisible to others until they are acknowledged.

Outside it is RocketMQ's protocol, inside it is not RocketMQ's design. There every pop and every
acknowledgement becomes a message of the timer, which is written twice and read back when the time
is over. Here the state of each queue is in memory (`state`), and what changes it is one record of
a topic of the broker's own (`journal`): written once, flushed and replicated like any message, and
only read after a restart. `keeping` publishes the lowest offset that is not settled as the offset
of the group, so a broker that knows nothing of the journal, RocketMQ's too, delivers again from
there: twice maybe, but all of it. What is in a revive log that such a broker left is taken over
by `legacy`.
"""
