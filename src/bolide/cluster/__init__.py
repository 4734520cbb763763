"""A cluster of child processes on this machine, for trying, for tests and for demos.

`plan` derives the members, their ports, directories and configuration files from a few options.
`LocalCluster` starts and stops them, kills and pauses them, and cuts and slows the links between
them. The links belong to a network: plain loopback, loopback behind a TCP proxy, or Linux network
namespaces. `data_directory` keeps a second cluster out and says what a killed one left; `control`
is how the commands of `bolide cluster` steer a running cluster.
"""

from bolide.cluster.data_directory import MemberState
from bolide.cluster.local_cluster import LocalCluster
from bolide.cluster.plan import ClusterOptions, ClusterPlan, Member, Role

__all__ = ["ClusterOptions", "ClusterPlan", "LocalCluster", "Member", "MemberState", "Role"]
