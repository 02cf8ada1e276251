"""A step of Celery's worker before it starts anything: settings that defeat priorities end it, with a sentence each."""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger

from fairlane.core.errors import Mistake

from .publish import fairlane_of
from .verify import Concurrency

logger = get_logger(__name__)


class VerifySettings(bootsteps.Step):  # type: ignore[misc]
    """Verifies the settings of a worker when it is made."""

    requires = ("celery.worker.components:Pool",)  # which reads --autoscale

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        fairlane = fairlane_of(parent.app)
        if fairlane is None:
            return
        try:
            findings = fairlane.settings_findings(Concurrency.of_worker(parent))
            for sentence in fairlane.advice():
                logger.warning("Fairlane: %s", sentence)
        except Mistake as error:
            _refuse(str(error))
        if findings:
            names = "".join(f'"{name}", ' for name in sorted({finding.setting for finding in findings})).rstrip()
            lines = "".join(f"\n- {finding.sentence}" for finding in findings)
            _refuse(
                f"Fairlane: this worker would not serve tasks in the order of their priorities:{lines}\n"
                f"To use it as it is all the same: Fairlane(…, accept=({names}))"
            )


def _refuse(message: str) -> None:
    logger.critical(message)
    raise SystemExit(1)
