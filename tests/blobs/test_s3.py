"""What S3 says when it cannot, and when its package is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.blobs import open_blobs
from fairlane.core.errors import StoreError, StoreUnfit, Unknown
from tests.servers.s3 import BUCKET

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reached(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("reached")
def test_a_bucket_that_does_not_exist_is_a_clear_error() -> None:
    blobs = open_blobs("s3://no-such-bucket/x")
    for attempt in (lambda: blobs.put({"a/b": [b"x"]}), lambda: blobs.open("a/b"), lambda: list(blobs.list_folder("a"))):
        with pytest.raises(StoreUnfit, match="there is no bucket for s3://no-such-bucket/x; create it"):
            attempt()
    with pytest.raises(Unknown, match="there is nothing at"):
        open_blobs(f"s3://{BUCKET}/x").open("a/b")


@pytest.mark.usefixtures("reached")
def test_a_server_that_does_not_answer_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    blobs = open_blobs(f"s3://{BUCKET}/x")
    with pytest.raises(StoreError, match=r"failed: .*; check the server, then try again") as caught:
        blobs.put({"a/b": [b"x"]})
    assert "\n" not in str(caught.value)


def test_without_its_package_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['obstore'] = None\nfrom fairlane.blobs import open_blobs\nopen_blobs('s3://b/x')"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (
        'StoreUnfit: files on S3 need obstore, which is not installed here; run in the clone: pip install ".[s3]"' in ran.stderr
    )


def test_a_queue_without_files_loads_nothing_of_it() -> None:
    script = (
        "import sys\nfrom fairlane import Queue\nwith Queue('memory://', blobs='s3://b/x') as queue: queue.submit('acme', 1)\n"
        "assert not {'obstore', 'fairlane.blobs.s3', 'fairlane.blobs.folder'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
