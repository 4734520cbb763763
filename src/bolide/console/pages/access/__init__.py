"""Pages about access control."""
