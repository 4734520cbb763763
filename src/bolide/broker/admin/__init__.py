"""Requests of tools and operators: queries, statistics, runtime figures, offset resets."""
