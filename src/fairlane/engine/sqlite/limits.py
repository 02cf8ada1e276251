"""Limits of customers in a file: what a customer has is summed over its lanes, where that may matter."""

from __future__ import annotations

from fairlane.core.policy import CustomerLimits
from fairlane.engine.limits import Additions, Usage, limits_of, refuse_customer, refuse_family

from .queries import sql
from .rows import StoredCustomer
from .transaction import Transaction


def refuse_over_limits(tx: Transaction, additions: Additions) -> None:
    """Raise LimitReached before anything is written."""
    for root, members in additions.families.items():
        row = tx.execute(sql.read_family, (root,)).fetchone()
        refuse_family(members, row[0] if row else 0, customer_limits(tx, tx.find_customer(members[0].customer)))
    for id, adding in additions.customers.items():
        customer = tx.find_customer(id)
        limits = customer_limits(tx, customer)
        if customer is None:
            refuse_customer(id, additions, Usage(0, 0, 0), limits)
        elif _may_be_over(customer, adding, limits):
            refuse_customer(id, additions, usage_of(tx, customer), limits)


def _may_be_over(customer: StoredCustomer, adding: int, limits: CustomerLimits) -> bool:
    """Return whether the customer's lanes must be read to know."""
    if limits.documents_max is not None or limits.bytes_max is not None or customer.busy_most is None:
        return True
    return limits.waiting_max is not None and customer.busy_most + adding > limits.waiting_max


def usage_of(tx: Transaction, customer: StoredCustomer) -> Usage:
    """Count what a customer has, and with it how many of its documents wait or run."""
    lanes = tx.all_lanes(customer.number)
    waiting = sum(lane.waiting for lane in lanes)
    customer.busy_most = waiting + sum(lane.running for lane in lanes)
    return Usage(waiting, sum(lane.documents for lane in lanes), sum(lane.bytes for lane in lanes))


def customer_limits(tx: Transaction, customer: StoredCustomer | None) -> CustomerLimits:
    """Return the limits that hold for a customer."""
    return tx.rules.limits if customer is None else limits_of(tx.terms(customer.number).terms, tx.rules)
