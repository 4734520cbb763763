"""Monitoring of pipeline runs: query progress, terminal output, reports to the cluster."""
