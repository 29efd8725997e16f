"""`python -m softbench` is the `softbench` command."""

from softbench.cli import main

main()
