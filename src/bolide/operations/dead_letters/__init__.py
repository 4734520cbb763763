"""Dead letters: the groups that have some, and sending them again."""
