"""Benchmark of the policy: checks per second in pure Python."""

from __future__ import annotations

import statistics
import time

from fairlane.core.policy import Policy, Standing

from .figures import Figure, Goal

GOAL_CHECKS = 300_000


def measure(rounds: int, checks: int) -> Figure:
    """Measure checks of one customer, each with the priority of its counter."""
    policy = Policy()
    rates = []
    for _ in range(rounds):
        standing = Standing()
        began = time.perf_counter()
        for now_ms in range(checks):
            standing = policy.check(standing, now_ms)
            policy.level(standing.counter)
        rates.append(checks / (time.perf_counter() - began))
    rate = statistics.median(rates)
    return Figure("policy checks", rate, "checks/s", GOAL_CHECKS, Goal(1.0), "limit is the goal")
