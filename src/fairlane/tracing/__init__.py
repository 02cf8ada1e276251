"""Does anybody want to know, by OpenTelemetry, what became of each document? Only whoever named an exporter.

Laws:
- Without an exporter in the environment nothing is traced, and nothing of OpenTelemetry is imported.
- What is wrong with it is told once and stops nothing: documents matter more than what is said of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .spans import Spans

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def exporters(environment: Mapping[str, str]) -> list[str]:
    """The exporters that are asked for, by their names; an address alone asks for `otlp`."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    told = environment.get("OTEL_TRACES_EXPORTER", "")
    if not told.strip() and any(environment.get(name) for name in ENDPOINTS):
        told = "otlp"
    return [name for one in told.split(",") if (name := one.strip().lower()) not in ("", "none")]


def open_spans(environment: Mapping[str, str], warn: Callable[[str], object]) -> Spans | None:
    """A way to tell spans, or None: nobody wants them, or it cannot be done, which is told then."""
    names = exporters(environment)
    if not names:
        return None
    try:
        from .spans import Spans
    except ImportError:
        warn('OpenTelemetry is asked for, but its packages are missing; install "fairlane[otel]"')
        return None
    try:
        return Spans(names, environment)
    except Exception as error:  # noqa: BLE001 - exporters are somebody else's code
        warn(f"OpenTelemetry is asked for, but its exporter cannot be used: {str(error)[:300]}; see the OTEL_ variables")
        return None
