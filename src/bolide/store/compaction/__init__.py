"""Compaction topics: the newest message of each key is kept, however old it is.

The messages of a topic with `cleanup.policy=COMPACTION` are stored in the commit log and in consume
queues like all others. A thread of this package copies them into a log of their own, one for each
queue, and rewrites that log from time to time without the messages that a newer one of the same
key replaces. Queue offsets never change, so the log has gaps. Retention deletes commit log files
only when their messages have been copied.

`segments` has the file formats, `queue_log` the log of one queue, `compactor` the rewriting,
`recovery` what happens at the start, `positions` how far each queue was compacted, and
`topic_compaction` the thread and the operations that the message store calls.
"""
