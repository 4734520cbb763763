"""The pages; each module declares its own with `declaration.page`, `all_pages` imports them."""
