"""A Ray of its own for each file of tests, in a temporary folder: two processors, one GPU that exists by name only."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Queue
from tests.worker.conftest import Bench

# Read when Ray is imported: it sends no statistics, and writes no token into the home folder.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
os.environ.pop("RAY_ADDRESS", None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a running Ray, which this process has joined."""
    import ray

    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # its sockets need a short path
        ray.init(
            address="local", num_cpus=2, num_gpus=1, object_store_memory=80_000_000, include_dashboard=False,
            log_to_driver=False, configure_logging=False, logging_level=logging.ERROR, _temp_dir=folder,
        )  # fmt: skip
        yield ray.get_runtime_context().gcs_address
        ray.shutdown()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    with Queue(url) as queue:
        yield queue


@pytest.fixture
def bench(url: str) -> Bench:
    return Bench(url)
