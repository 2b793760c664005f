"""`python -m dpdemo`: the same program, for torchrun and for where no script is on the path."""

from dpdemo.cli import main

main()
