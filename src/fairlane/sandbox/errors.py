"""Errors of the sandbox.

SandboxError
├── ForkServerGone      the fork server has ended, or could not start
├── LayerRefused        a layer of the sandbox could not be put in force: the attempt did not begin
└── AttemptFailed       the attempt gave no result; `code` says why
    ├── TimedOut        timed_out: it ran out of wall-clock or processor time
    ├── LimitExceeded   too_large: it needed more memory, files or bytes than allowed
    ├── Crashed         crashed: it was killed, exited early, or sent a malformed response
    └── WorkFailed      the work raised this itself, with a code of its own; do not trust code and detail
"""

from __future__ import annotations

from fairlane.core.errors import FairlaneError


class SandboxError(FairlaneError):
    """The base class of errors of the sandbox."""


class ForkServerGone(SandboxError):
    """The fork server has ended, or could not start."""


class LayerRefused(SandboxError):
    """A layer could not be put in force."""

    def __init__(self, layer: str, why: str) -> None:
        self.layer, self.why = layer, why
        super().__init__(f"{layer}: {why}")


class AttemptFailed(SandboxError):
    """The attempt gave no result; the base class of the reasons."""

    code = ""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(f"{self.code}: {detail}")


class TimedOut(AttemptFailed):
    """It ran out of wall-clock or processor time."""

    code = "timed_out"


class LimitExceeded(AttemptFailed):
    """It needed more memory, files or bytes than allowed."""

    code = "too_large"


class Crashed(AttemptFailed):
    """It was killed, exited early, or sent a malformed response."""

    code = "crashed"


class WorkFailed(AttemptFailed):
    """The work raised this itself; outside of the confined process neither code nor detail can be trusted."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)
