"""Optional OpenTelemetry traces of documents; off unless the environment names an exporter.

Laws:
- Without an exporter in the environment nothing is traced, and nothing of OpenTelemetry is imported.
- A broken exporter is reported once and stops nothing: documents matter more than their traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .spans import Spans

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def exporters(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the configured exporters; an endpoint alone means `otlp`."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    setting = environment.get("OTEL_TRACES_EXPORTER", "")
    if not setting.strip() and any(environment.get(name) for name in ENDPOINTS):
        setting = "otlp"
    return [name for item in setting.split(",") if (name := item.strip().lower()) not in ("", "none")]


def open_spans(environment: Mapping[str, str], warn: Callable[[str], object]) -> Spans | None:
    """Return a span writer, or None if none is configured or it cannot be used, after a warning."""
    names = exporters(environment)
    if not names:
        return None
    try:
        from .spans import Spans
    except ImportError:
        warn('OpenTelemetry is configured, but its packages are missing; run in the clone: pip install ".[otel]"')
        return None
    try:
        return Spans(names, environment)
    except Exception as error:  # noqa: BLE001 - exporters are third-party code
        warn(f"OpenTelemetry is configured, but its exporter cannot be used: {str(error)[:300]}; check the OTEL_ variables")
        return None
