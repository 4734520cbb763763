"""Consumers: push, pull, lite pull and pop.

The consumer classes are in `push`, `pull` and `pop`; `group` assigns queues and stores offsets,
`handlers` calls user functions, and `parking` stores the messages of failing keys.
"""
