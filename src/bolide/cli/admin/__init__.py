"""`bolide admin`, also installed as `mqadmin`: RocketMQ's commands to administer a cluster.

Each module has the commands on one subject. A command parses its options, calls `AdminClient`, and
prints the result.
"""
