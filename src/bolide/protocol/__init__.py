"""Bytes and their meaning: frames, headers, bodies and message records; no I/O.

Everything here takes bytes and returns values, or the reverse. Wire names live in the header and
body classes and nowhere else. Imports model and the modules below it.
"""
