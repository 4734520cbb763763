"""`bolide admin`, alone `mqadmin`: RocketMQ's commands to look after a cluster.

One file a noun, one function a verb: it takes words, calls `AdminClient`, and prints.
"""
