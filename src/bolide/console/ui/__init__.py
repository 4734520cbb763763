"""What pages are made of: the shell around them, tables, panels, dialogs, charts and formats.

A page module in `bolide.console.pages` has functions that take a `View` and build elements. Nothing
in a page asks the cluster while it is built: `Panel` and `DataTable` load when the page is shown.
"""
