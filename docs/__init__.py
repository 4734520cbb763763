"""The documentation. `reference` writes the pages that come from the code."""
