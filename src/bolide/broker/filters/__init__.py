"""Message filters beyond tags: SQL92 expressions, and functions registered by administrators."""
