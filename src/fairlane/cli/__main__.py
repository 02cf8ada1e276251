"""`python -m fairlane.cli`, the same as `fairlane`."""

from . import main

main()
