"""Consumers: push, pull and lite pull, their share of the queues and their progress in them."""
