"""Metrics and health of a server: the model of a metric, its text, and how it is served or sent.

`Exporter` is what a server runs; it is given a function that yields the server's families and one
that tells what is missing for it to be ready. What a family means is the business of the server.
"""
