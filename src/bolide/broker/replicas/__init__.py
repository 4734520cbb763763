"""Replicas of a broker: its role in its group, replication, and the metadata that slaves copy."""
