"""`python -m fairlane.cli` is `fairlane`."""

from . import main

main()
