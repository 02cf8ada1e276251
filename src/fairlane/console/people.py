"""People who sign in as themselves, and the role that their groups grant.

Laws:
- Nobody has a role unless a grant names one of their groups; the group `*` is everybody who can sign in.
- The role is found anew for every request, from the groups that somebody had at sign-in: a grant that is taken away ends what
  it gave.
- A person has one role, of several the strongest. Somebody whose groups belong to several customers, and who has no role of
  staff, has none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import NamedTuple, get_args

from fairlane.api.auth import Caller
from fairlane.api.permissions import Role, permissions_of
from fairlane.core.document import validate_text
from fairlane.core.errors import BadValue
from fairlane.printable import printable

EVERYBODY = "*"
NAME_MAX = 200  # characters
STAFF_ROLES: tuple[Role, ...] = ("admin", "operator", "viewer")  # the strongest first
EXPECTED = "GROUP=ROLE, as in support=viewer; a role is viewer, operator, admin or customer:NAME"
_GRANT = re.compile(r"(?P<group>.+)=(?P<role>viewer|operator|admin|customer:(?P<customer>.+))", re.DOTALL)
_ID = re.compile(r"person_[0-9a-f]{32}")


class NoRole(Exception):
    """Somebody signed in who has no role here; the message says why, for the log."""


class RoleGrant(NamedTuple):
    """What the people of a group may do."""

    group: str
    role: Role
    customer: str | None = None


class Person(NamedTuple):
    """Somebody who signed in, as known then; `groups` are those that a grant named."""

    id: str
    name: str
    issuer: str  # who vouches for it
    groups: tuple[str, ...] = ()
    role: Role = "viewer"  # at sign-in; what counts now is found anew
    customer: str | None = None


def make_person(issuer: str, subject: str, name: str) -> Person:
    """Make a person of what an issuer says; the same subject of the same issuer has the same id."""
    digest = hashlib.sha256(json.dumps([issuer, subject]).encode()).hexdigest()
    return Person(f"person_{digest[:32]}", printable(name)[:NAME_MAX], issuer)


def is_person_id(id: str) -> bool:
    return _ID.fullmatch(id) is not None


class Grants:
    """All grants of a service."""

    def __init__(self, grants: Iterable[RoleGrant] = ()) -> None:
        self._grants = tuple(grants)

    def __bool__(self) -> bool:
        return bool(self._grants)

    @property
    def groups(self) -> list[str]:
        """The groups that grants name, without everybody."""
        return [grant.group for grant in self._grants if grant.group != EVERYBODY]

    def named(self, groups: Iterable[str]) -> tuple[str, ...]:
        """Return those of somebody's groups that a grant names."""
        return tuple(sorted({grant.group for grant in self._grants} & set(groups)))

    def admit(self, person: Person, groups: Iterable[str]) -> Person:
        """Return the person with what its groups grant; raises NoRole."""
        named = self.named(groups)
        grant = self._strongest(named)
        return person._replace(groups=named, role=grant.role, customer=grant.customer)

    def caller(self, person: Person) -> Caller | None:
        """Return the caller that a person is now; None: no grant is left for it."""
        try:
            grant = self._strongest(person.groups)
        except NoRole:
            return None
        return Caller(person.id, grant.customer, grant.role, permissions_of(grant.role, ()), person.name, is_person=True)

    def _strongest(self, groups: Iterable[str]) -> RoleGrant:
        present = {EVERYBODY, *groups}
        grants = [grant for grant in self._grants if grant.group in present]
        for role in STAFF_ROLES:
            if any(grant.role == role for grant in grants):
                return RoleGrant(EVERYBODY, role)
        customers = sorted({grant.customer for grant in grants if grant.customer is not None})
        if len(customers) > 1:
            raise NoRole(f"the groups belong to several customers: {', '.join(customers)}")
        if not customers:
            raise NoRole("no --grant names one of the groups")
        return RoleGrant(EVERYBODY, "customer", customers[0])


def parse_grants(texts: Iterable[str]) -> Grants:
    """Parse grants, each as GROUP=ROLE; the last equals sign before a role separates them."""
    return Grants(_parse_grant(text) for text in texts)


def _parse_grant(text: str) -> RoleGrant:
    match = _GRANT.fullmatch(text)
    if match is None:
        raise BadValue("--grant", text, EXPECTED)
    group, customer = match["group"], match["customer"]
    validate_text("group of --grant", group)
    if customer is not None:
        return RoleGrant(group, "customer", validate_text("customer of --grant", customer))
    return RoleGrant(group, next(role for role in get_args(Role) if role == match["role"]))
