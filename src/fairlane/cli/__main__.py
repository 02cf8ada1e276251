"""`python -m fairlane.cli`, the same as `fairlane`."""

from fairlane.procs.python import drop_working_directory

from . import main

drop_working_directory()
main()
