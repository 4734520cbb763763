"""Monitoring of pipeline runs: query progress, terminal output, the topic BOLIDE_PIPELINE_PROGRESS."""
