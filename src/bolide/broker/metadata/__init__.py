"""The broker's tables: topics, groups, offsets, clients, queue locks, and their requests."""
