"""Brokers, NameServers and controllers: members, settings, replication, drains, health."""
