"""Failovers of our servers beside those of Apache RocketMQ's controller mode, in one run."""
