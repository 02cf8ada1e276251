"""An engine that encrypts keeps every promise of the one inside: the tests of engines, on engines that encrypt."""

from __future__ import annotations

from tests.engine.test_attempts import *  # noqa: F403
from tests.engine.test_claim import *  # noqa: F403
from tests.engine.test_documents import *  # noqa: F403
from tests.engine.test_kind_limits import *  # noqa: F403
from tests.engine.test_read import *  # noqa: F403
from tests.engine.test_settle import *  # noqa: F403
from tests.engine.test_steering import *  # noqa: F403
from tests.engine.test_submit import *  # noqa: F403
from tests.engine.test_turns import *  # noqa: F403
