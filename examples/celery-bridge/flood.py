"""Two big customers publish their pages, then five small ones two each: python flood.py [PAGES]. Prints the waits."""

from __future__ import annotations

import sys
import time

from tasks import extract

PAGES = int(sys.argv[1]) if len(sys.argv) > 1 else 500
SMALL = [f"small-{number}" for number in range(1, 6)]


def publish(customer: str, pages: int) -> list:
    return [extract.delay(customer, page, time.time()) for page in range(pages)]


published = {"big": publish("big", PAGES), "large": publish("large", PAGES)}
published |= {customer: publish(customer, 2) for customer in SMALL}
print(f"{2 * PAGES + 2 * len(SMALL)} tasks are published; the last of big is {published['big'][-1].id}")
waits = {customer: [result.get(timeout=600) for result in results] for customer, results in published.items()}
print("customer   tasks   first start after   last start after")
for customer, seconds in waits.items():
    print(f"{customer:<9} {len(seconds):>6} {min(seconds):>17.2f} s {max(seconds):>16.2f} s")
