"""Upload tokens on behalf of whoever may submit: made, and looked at."""

from __future__ import annotations

from fairlane.api import upload_tokens
from fairlane.api.auth import Caller
from fairlane.api.problems import nothing_here
from fairlane.api.upload_tokens import TokenOptions, UploadToken
from fairlane.queue import Queue
from fairlane.queue.audited_queue import AuditedQueue

from .customer import refuse_cost


class UploadTokenAccess:
    """Upload tokens of the caller's customer, or of the one that staff names."""

    def __init__(self, queue: Queue, caller: Caller) -> None:
        self._queue = queue
        self._caller = caller
        self._actor = queue.actor if isinstance(queue, AuditedQueue) else None

    def create(self, customer: str | None, options: TokenOptions) -> tuple[str, UploadToken]:
        """Make a token for one document; it ends with the key that the caller shows."""
        owner = self._caller.customer_for(customer)
        if not isinstance(options.cost, str):
            refuse_cost(self._queue, self._caller, options.cost)
        made_by = None if self._caller.is_person else self._caller.id
        return upload_tokens.create(self._queue.engine, owner, options, made_by=made_by, actor=self._actor)

    def get(self, id: str) -> UploadToken:
        token = upload_tokens.find(self._queue.engine, id)
        if not self._caller.may_see(token.customer):
            raise nothing_here()
        return token
