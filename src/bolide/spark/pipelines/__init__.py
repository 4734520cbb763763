"""Pipelines: what `bolide pipeline` runs on Spark, declared in files or built in.

What one is stands in `work`; `declared` makes it of a YAML file, `builtin` finds those that come
with Bolide. `runner` runs it, `reporting` tells of it on the topic BOLIDE_PIPELINES.
"""
