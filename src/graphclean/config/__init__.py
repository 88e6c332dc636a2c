"""Settings with their reasons, presets, and `--set section.name=value`; nothing here loads torch."""

from .overrides import (
    apply_settings,
    change_settings,
    differing_settings,
    load_preset,
    recorded_settings,
)
from .settings import AuditSettings, Config, GraphSettings, LearnSettings, MethodChoice, OodSettings

__all__ = [
    "AuditSettings",
    "Config",
    "GraphSettings",
    "LearnSettings",
    "MethodChoice",
    "OodSettings",
    "apply_settings",
    "change_settings",
    "differing_settings",
    "load_preset",
    "recorded_settings",
]
