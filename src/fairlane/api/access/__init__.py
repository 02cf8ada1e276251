"""What a caller may see and touch: the one layer between the routes and the store.

Laws:
- Every read and change is made on behalf of a caller. No route reaches a document, a batch or a customer in another way.
- What belongs to somebody else and what does not exist take the same steps and end in the same problem.
- Customers learn nothing of workers, of other customers, or of how many documents the whole queue has had.
"""

from __future__ import annotations

from fairlane.api.auth import Caller
from fairlane.api.cursors import Cursors
from fairlane.queue import Queue

from .audit import AuditAccess
from .batches import BatchAccess
from .customer import OwnAccess
from .documents import DocumentAccess
from .keys import KeyAccess
from .operator import OperatorAccess
from .upload_tokens import UploadTokenAccess
from .webhooks import WebhookAccess


class Access:
    """What one caller may see and touch, by what it is about; every method of the parts may block."""

    def __init__(self, queue: Queue, caller: Caller, cursors: Cursors) -> None:
        self._queue = queue
        self._caller = caller
        self.documents = DocumentAccess(queue, caller, cursors)

    @property
    def own(self) -> OwnAccess:
        """The caller's own counter and rules."""
        return OwnAccess(self._queue, self._caller)

    @property
    def batches(self) -> BatchAccess:
        return BatchAccess(self._queue, self._caller)

    @property
    def webhooks(self) -> WebhookAccess:
        return WebhookAccess(self._queue, self._caller, self.documents)

    @property
    def upload_tokens(self) -> UploadTokenAccess:
        return UploadTokenAccess(self._queue, self._caller)

    @property
    def keys(self) -> KeyAccess:
        """All keys; for anybody but admins they do not exist."""
        return KeyAccess(self._queue, self._caller)

    @property
    def audit(self) -> AuditAccess:
        """The audit log; for anybody but admins it does not exist."""
        return AuditAccess(self._queue, self._caller)

    @property
    def operator(self) -> OperatorAccess:
        """What only operators may do; for customers it does not exist."""
        return OperatorAccess(self._queue, self._caller)
