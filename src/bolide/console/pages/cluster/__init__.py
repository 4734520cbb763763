"""Pages about the servers of the cluster."""
