"""The table of connections: who makes room for whom."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fairlane.api.connection_table import CLOSING_MAX, ConnectionTable, Groups


class Line:
    """A connection that remembers how it ended."""

    def __init__(self, table: ConnectionTable) -> None:
        self.table = table
        self.ended = ""

    def make_room(self) -> None:
        self.ended = "made room"

    def abort(self) -> None:
        self.ended = "aborted"


def opened(table: ConnectionTable, count: int, address: str) -> list[Line]:
    lines = [Line(table) for _ in range(count)]
    for line in lines:
        assert table.admit(line, address)
    return lines


def test_the_oldest_of_the_address_with_most_makes_room() -> None:
    table = ConnectionTable(10, 100)
    calm = opened(table, 2, "a")
    crowd = opened(table, 5, "b")
    other = opened(table, 3, "c")
    opened(table, 4, "d")
    assert [line.ended for line in crowd] == ["made room"] * 3 + [""] * 2
    assert [line.ended for line in other] == ["made room"] + [""] * 2  # as many as b then: the one that has been so for longest
    assert not any(line.ended for line in calm)
    assert table.open == 10


def test_an_address_over_its_share_displaces_its_own() -> None:
    table = ConnectionTable(100, 3)
    others = opened(table, 50, "")  # not counted by address
    lines = opened(table, 5, "a")
    assert [line.ended for line in lines] == ["made room"] * 2 + [""] * 3
    table.show_key(lines[2], "acme")
    (newest,) = opened(table, 1, "a")
    assert not lines[3].ended  # whoever has shown a key is not counted any more
    table.remove(newest)
    assert not any(line.ended for line in others)


def test_requests_with_a_key_are_not_displaced_and_idle_connections_go_last() -> None:
    table = ConnectionTable(4, 100)
    lines = opened(table, 4, "a")
    for line in lines[:3]:
        table.show_key(line, "acme")
    table.set_idle(lines[0])
    table.set_idle(lines[3])  # has no key, so it stays a stranger
    (first,) = opened(table, 1, "b")
    assert [line.ended for line in lines] == ["", "", "", "made room"]
    table.show_key(first, "bolt")
    (second,) = opened(table, 1, "b")
    assert [line.ended for line in lines[:3]] == ["made room", "", ""]
    table.show_key(second, "bolt")
    refused = Line(table)
    assert not table.admit(refused, "c")
    assert (table.open, len(table), refused.ended) == (4, 7, "")
    table.show_key(refused, "x")  # too late
    assert table.open == 4
    table.remove(second)
    opened(table, 1, "d")


def test_few_are_being_closed_at_once() -> None:
    table = ConnectionTable(1, 100)
    lines = opened(table, CLOSING_MAX + 11, "a")
    assert Counter(line.ended for line in lines) == {"aborted": 10, "made room": CLOSING_MAX, "": 1}
    assert [line.ended for line in lines[:10]] == ["aborted"] * 10
    for line in lines:
        table.remove(line)
        table.remove(line)  # connections may end while they are being ended
    assert (table.open, len(table)) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.booleans())))
def test_groups_agree_with_a_plain_count(steps: list[tuple[str, int, bool]]) -> None:
    groups: Groups[int] = Groups()
    plain: dict[str, list[int]] = {name: [] for name in "abcd"}
    for name, member, is_added in steps:
        if is_added and member not in plain[name]:
            plain[name].append(member)
            groups.add(name, member)
        elif not is_added and member in plain[name]:
            plain[name].remove(member)
            groups.remove(name, member)
        assert {name: groups.count(name) for name in plain} == {name: len(members) for name, members in plain.items()}
        largest = max(map(len, plain.values()))
        oldest = groups.oldest_of_largest()
        assert oldest in ({members[0] for members in plain.values() if len(members) == largest} if largest else {None})
