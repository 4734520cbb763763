"""Producers: from a message to the broker that stored it."""
