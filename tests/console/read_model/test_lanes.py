"""The biggest customers of a lane are exact, however many customers there are."""

from __future__ import annotations

import random
from collections import Counter

from fairlane.console.read_model.customers import CustomerRow
from fairlane.console.read_model.lanes import TOP, LaneCounts, LiveDocument


def ready_document(number: int, row: CustomerRow) -> LiveDocument:
    document = LiveDocument(str(number), number, row, 1, number)
    document.state = "ready"
    return document


def test_the_biggest_of_a_lane_are_exact() -> None:
    dice = random.Random(7)
    rows = [CustomerRow(f"customer {number:04}") for number in range(3000)]
    lane, ready, counts = LaneCounts(1), list[LiveDocument](), Counter[str]()
    for number in range(30_000):
        if dice.random() < 0.6 or not ready:
            row = rows[int(len(rows) * dice.random() ** 3)]
            document = ready_document(number, row)
            lane.add(document)
            ready.append(document)
            counts[row.customer] += 1
        else:
            index = dice.randrange(len(ready))
            document, ready[index] = ready[index], ready[-1]
            ready.pop()
            lane.remove(document)
            document.state = ""
            counts[document.row.customer] -= 1
        if number % 500 == 499:
            top = [(row.customer, count) for row, count in lane.top()]
            assert [count for _, count in top] == sorted(counts.values(), reverse=True)[:TOP]
            assert all(counts[customer] == count for customer, count in top)
            assert lane.oldest_ms() == min(document.ready_ms for document in ready)


def test_others_come_up_when_the_biggest_are_served() -> None:
    lane = LaneCounts(1)
    big, small = [[CustomerRow(f"{name} {number:03}") for number in range(150)] for name in ("big", "small")]
    served = []
    for rows, count in ((big, 10), (small, 5)):
        for row in rows:
            documents = [ready_document(number, row) for number in range(count)]
            for document in documents:
                lane.load(document)
            served += documents[1:] if rows is big else []
    lane.finish_loading()
    assert {count for _, count in lane.top()} == {10}
    for document in served:  # one of each big customer is left
        lane.remove(document)
    assert {count for _, count in lane.top()} == {5}
