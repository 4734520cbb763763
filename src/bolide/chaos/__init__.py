"""The fault bench: a workload under faults, and a checker that says what was kept of the promises.

`history` records every send and every delivery, `workload` makes them, `nemesis` injects faults
into a target, `checker` compares the history with what was promised, and `report` writes it down.
`run`, `failover` and `loss` are the three measurements of `bolide chaos`. A target is a
`LocalCluster` (`target`) or any other cluster behind the same interface. `member` starts a broker
with `faults` in its disk and its clock.
"""
