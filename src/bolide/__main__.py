"""`python -m bolide` is the `bolide` command."""

from bolide.cli import main

main()
