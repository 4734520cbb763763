"""Benchmarks for any RocketMQ cluster, compatible with RocketMQ's own benchmark programs.

`producer`, `consumer`, `transactions`, `timers` and `round_trip` implement the commands. They share
`workload` (the messages), `runner` (when a run ends), `counters` and `report` (the output). The
package imports from `client` and below; `cli.bench` runs it.
"""
