"""`fairlane`, which is `python -m fairlane` too: until everything is loaded, Ctrl-C ends it without a word."""

import signal


def main() -> None:
    """Load the command line, and run it."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us wants it ignored
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli import main as command

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


if __name__ == "__main__":
    main()
