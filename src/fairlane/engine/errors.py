"""Errors that every engine raises in the same words."""

from __future__ import annotations

from fairlane.core.document import Submission
from fairlane.core.errors import StoreFrozen, Unknown
from fairlane.core.policy import Rules


def refuse_frozen(rules: Rules) -> None:
    """Raise StoreFrozen if the rules say why nothing new may begin in this queue."""
    if rules.frozen is not None:
        raise StoreFrozen(rules.frozen)


def unknown_source_error(submission: Submission) -> Unknown:
    """Return the error for a document made from one that its customer does not have."""
    return Unknown(
        f"there is no document {submission.made_from} of customer {submission.customer!r} to make another one from; it was "
        "never submitted, or it was purged"
    )


def purged_feed_error(floor: int, after: int) -> Unknown:
    """Return the error for a reader of the feed whose next changes were purged."""
    return Unknown(
        f"changes up to {floor} were purged, so those after {after} cannot all be given; start again from the oldest kept "
        "with after=None"
    )
