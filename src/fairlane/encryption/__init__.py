"""Encryption at rest: payloads, results, reasons, records and files are unreadable to whoever has the store without its key."""

from .engine import EncryptedEngine as EncryptedEngine
from .engine import inner_engine as inner_engine
from .engine import join_store_transaction as join_store_transaction
from .engine import open_store as open_store
from .keyring import EncryptionKeyring as EncryptionKeyring
from .keyring import KeyMissing as KeyMissing
from .keyring import load_keyring as load_keyring
