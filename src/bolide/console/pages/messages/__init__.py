"""Pages about messages and their traces."""
