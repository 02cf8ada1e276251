"""The entry point of `fairlane` and `python -m fairlane`."""

import signal


def main() -> None:
    """Import the command line and run it; Ctrl-C during the import ends the program without a traceback."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else the parent process had it ignored
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .procs.python import drop_working_directory

    drop_working_directory()
    from .cli import main as command

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
