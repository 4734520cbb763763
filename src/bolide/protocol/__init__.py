"""The wire protocol: frames, headers, bodies and message records; no I/O.

All functions turn bytes into values or values into bytes. Wire names live in the header and
body classes and nowhere else. Imports model and the modules below it.
"""
