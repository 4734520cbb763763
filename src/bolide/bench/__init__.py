"""Benchmarks of any RocketMQ cluster, with the options and lines of RocketMQ's own programs.

`workload` says what is sent, `sending`, `consuming`, `latency` and `e2e` do it, `runner` says when
it ends, and `report` tells the outcome. It imports from `client` and below; `cli` runs it.
"""
