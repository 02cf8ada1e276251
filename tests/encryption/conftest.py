"""Keys, and engines of every kind that encrypt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane.encryption import EncryptionKeyring, load_keyring, open_store
from fairlane.encryption.keyring import FILE_VARIABLE, KEYS_VARIABLE, new_key
from fairlane.engine import Engine
from tests.engine.conftest import ENGINES, url_of
from tests.engine.conftest import send as send
from tests.engine.conftest import take as take
from tests.servers import redis

Use = Callable[..., EncryptionKeyring]


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    url = url_of(request.param, tmp_path)
    yield url
    redis.drop_url(url)


@pytest.fixture(params=[name for name in ENGINES if name != "memory"])
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a queue that can be opened again."""
    url = url_of(request.param, tmp_path)
    yield url
    redis.drop_url(url)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Set the keys of this program and of those that it starts; without any, there are none."""

    def use(*keys: str) -> EncryptionKeyring:
        monkeypatch.delenv(FILE_VARIABLE, raising=False)
        if keys:
            monkeypatch.setenv(KEYS_VARIABLE, ",".join(keys))
        else:
            monkeypatch.delenv(KEYS_VARIABLE, raising=False)
        return load_keyring()

    use()
    return use


@pytest.fixture
def engine(url: str, use: Use) -> Iterator[Engine]:
    use(new_key(), new_key())
    engine = open_store(url)
    yield engine
    engine.close()
