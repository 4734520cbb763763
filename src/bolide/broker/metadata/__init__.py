"""Metadata tables and their request handlers: topics, groups, offsets, clients, queue locks.

Topics, groups and offsets are saved to RocketMQ's `config/*.json`; clients and queue locks live in
memory only. Each table belongs to the broker's event loop unless its docstring says otherwise.
"""
