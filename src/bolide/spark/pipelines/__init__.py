"""Pipelines that `bolide pipeline` runs on Spark, declared in YAML files or built in.

`definition` has the types; `declared` reads a pipeline from a YAML file; `builtin` lists the
built-in pipelines, each in a module of its own. `runner` runs a pipeline, and `monitoring` shows
its progress and reports it to the cluster.
"""
