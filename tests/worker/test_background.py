"""Background jobs: when they are done."""

from __future__ import annotations

import pytest

from fairlane.worker.background import reclaim_pause


@pytest.mark.parametrize("lease_ms", [1000, 30_000, 24 * 3600 * 1000])
def test_leases_are_reclaimed_several_times_in_a_lease_and_soon_after_the_store_failed(lease_ms: int) -> None:
    for _ in range(200):
        assert 0 < reclaim_pause(lease_ms, has_failed=False) <= min(15, lease_ms / 1000 / 2)
        assert 0 < reclaim_pause(lease_ms, has_failed=True) <= 2
