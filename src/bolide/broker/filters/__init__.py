"""What consumers want beyond tags: SQL92 expressions, and functions of administrators."""
