"""Consumer groups: the list, one group, its members, settings and offsets."""
