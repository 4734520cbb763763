"""Consumers that pop, and pops on behalf of push consumers."""
