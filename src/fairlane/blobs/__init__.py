"""Where do the bytes of documents live? The only place that names concrete stores: a folder, or S3."""

from __future__ import annotations

import os

from fairlane.core.errors import BadValue, StoreUnfit

from .protocol import Blobs as Blobs

WHERES = "a folder, as in /srv/fairlane-files, or s3://bucket/prefix"


def open_blobs(where: str) -> Blobs:
    """The store that a folder or a URL names; nothing is made before something is put into it."""
    if not isinstance(where, str) or not where or "\0" in where:
        raise BadValue("blobs", where, WHERES)
    if where.startswith("s3://"):
        return _s3(where)
    if "://" in where:
        raise BadValue("blobs", where, WHERES)
    from .folder import FolderBlobs

    return FolderBlobs(os.path.abspath(where))


def _s3(where: str) -> Blobs:
    try:
        from .s3 import S3Blobs
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "obstore":
            raise
        raise StoreUnfit('files on S3 need obstore, which is not installed here; run: pip install "fairlane[s3]"') from error
    return S3Blobs(where)
