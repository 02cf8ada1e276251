"""What became of each page: the fields that were found, and who had to wait."""

from __future__ import annotations

from steps import URL

from fairlane import Queue

with Queue(URL) as queue:
    order = [change.document for change in queue.changes() if change.event == "done"]
    print("customer  pages  counter  last page ended as number")
    for look in queue.customers():
        pages = [document.id for document in queue.documents(look.customer)]
        place = 1 + max(map(order.index, pages))
        print(f"{look.customer:<8} {len(pages):>6} {look.counter:>8} {place:>15} of {len(order)}")
        print(f"          such as {queue.result(pages[0])}")
