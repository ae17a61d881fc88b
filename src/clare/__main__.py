"""`python -m clare`."""

from clare.cli.main import main

main()
