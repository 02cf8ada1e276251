"""Storage for the bytes of documents. Only this module names the concrete stores: a folder, or S3."""

from __future__ import annotations

import os

from fairlane.core.errors import BadValue, StoreUnfit

from .protocol import Blobs as Blobs

LOCATION_FORMS = "a folder, as in /srv/fairlane-files, or s3://bucket/prefix"


def open_blobs(location: str) -> Blobs:
    """Return the store at a folder or URL; nothing is created there before the first `put`."""
    if not isinstance(location, str) or not location or "\0" in location:
        raise BadValue("blobs", location, LOCATION_FORMS)
    if location.startswith("s3://"):
        return _open_s3(location)
    if "://" in location:
        raise BadValue("blobs", location, LOCATION_FORMS)
    from .folder import FolderBlobs

    return FolderBlobs(os.path.abspath(location))


def _open_s3(url: str) -> Blobs:
    try:
        from .s3 import S3Blobs
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "obstore":
            raise
        raise StoreUnfit(
            'files on S3 need obstore, which is not installed here; run in the clone: pip install ".[s3]"'
        ) from error
    return S3Blobs(url)
