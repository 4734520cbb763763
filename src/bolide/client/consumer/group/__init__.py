"""A consumer in its group: rebalance, assignment, held queues, offsets, locks."""
