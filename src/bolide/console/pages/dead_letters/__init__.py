"""Pages about dead letters, and about the jobs that send them again."""
