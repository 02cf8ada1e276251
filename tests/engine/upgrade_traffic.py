"""A program of the present version at work, as a process: submits, claims and settles until its input ends, and reports.

Run with a URL and a name. Prints a line for each round: the ids that were acknowledged and the ids that it settled; a last line
says why it stopped, if a store refused it.
"""

from __future__ import annotations

import json
import select
import sys

from fairlane.core.document import Done, Submission
from fairlane.core.errors import StoreUnfit
from fairlane.engine import open_engine

LEASE_MS = 600_000


def main(url: str, name: str) -> None:
    """Work until standard input ends; then end what was submitted here, as far as it is still waiting."""
    engine = open_engine(url)
    number, is_told_to_stop = 0, False
    while True:
        submitted = []
        is_told_to_stop = is_told_to_stop or bool(select.select([sys.stdin], [], [], 0)[0])
        try:
            if not is_told_to_stop:
                submitted = [f"{name}-{number}", f"{name}-{number + 1}"]
                engine.submit([Submission(id, name, "extract", "null", key=id, digest=id) for id in submitted])
                number += len(submitted)
            claims = engine.claim(name, 3, LEASE_MS)
            lost = engine.settle([(claim, Done("1")) for claim in claims])
            assert not lost
            assert engine.document(submitted[0] if submitted else f"{name}-0") is not None
        except StoreUnfit as error:
            print(json.dumps({"refused": str(error)}), flush=True)  # noqa: T201
            return
        print(json.dumps({"submitted": submitted, "settled": [claim.id for claim in claims]}), flush=True)  # noqa: T201
        if is_told_to_stop and not claims:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
