"""`python -m hightide` is the `hightide` command."""

from hightide.cli import main

main()
