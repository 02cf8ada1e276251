"""docs/privacy.md: its commands are run one after the other: a customer is exported and forgotten, and the rest encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane import Queue
from fairlane.encryption import KeyMissing
from tests.docs.snippets import snippet
from tests.terminal import bash

from .archive import Exported


def test_a_customer_is_exported_and_forgotten_and_the_rest_encrypted(tmp_path: Path) -> None:
    url, keys = f"sqlite:///{tmp_path}/fairlane.db", tmp_path / "etc/keys"
    with Queue(url) as queue:
        queue.submit("acme", {"title": "words of acme"}, content=b"bytes of acme")
        kept = queue.submit("bolt", {"title": "words of bolt"}, content=b"bytes of bolt").id
    export = snippet("docs/privacy.md", "fairlane export acme").replace("| age -r RECIPIENT > acme.tar.age", "> acme.tar")
    forget = snippet("docs/privacy.md", "fairlane forget acme")
    install, _, encrypt = snippet("docs/privacy.md", 'pip install ".[encryption]"').partition("\n")
    assert install.startswith("pip install ")  # is done already
    encrypt = encrypt.replace("/etc/fairlane", f"{tmp_path}/etc")
    bash(f"{export}echo y | {forget}{encrypt}", tmp_path)
    for archive in ("acme.tar.gz", "acme.tar"):
        (document,) = Exported(tmp_path / archive).rows("documents")
        assert document["payload"]["title"] == "words of acme"
    with pytest.raises(KeyMissing, match="this queue is encrypted"):
        Queue(url)
    with Queue(url, encryption_key_file=str(keys)) as queue:
        assert [look.customer for look in queue.customers()] == ["bolt"]
        assert queue.payload(kept) == {"title": "words of bolt"}
        with queue.file(kept) as file:
            assert file.read() == b"bytes of bolt"
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and not path.match("acme.tar*"))
    assert [text for text in (b"s of acme", b"s of bolt") if text in stored] == []
