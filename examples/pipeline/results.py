"""What became of each page: follows it from step to step to the fields that were found, and says who had to wait."""

from __future__ import annotations

from steps import URL

from fairlane import Queue


def last_step(queue: Queue, id: str) -> str:
    """Follow a page through the documents that were made from it."""
    while "next" in (result := queue.result(id)):
        id = result["next"]
    return id


with Queue(URL) as queue:
    order = [change.document for change in queue.changes() if change.event == "done"]
    print("customer  pages  documents  counter  last page ended as number")
    for look in queue.customers():
        pages = [document.id for document in queue.documents(look.customer, kind="ocr")]
        ends = [last_step(queue, id) for id in pages]
        place = 1 + max(map(order.index, ends))
        print(f"{look.customer:<8} {len(pages):>6} {look.done:>10} {look.counter:>8} {place:>15} of {len(order)}")
        print(f"          such as {queue.result(ends[0])}")
