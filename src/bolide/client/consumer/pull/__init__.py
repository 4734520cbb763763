"""Consumers that pull, and the pull requests and feeders that push consumers use too."""
