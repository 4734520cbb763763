"""Consumers: push, pull, lite pull and pop."""
