"""Settings with their reasons, presets, and `--set section.name=value`; never imports torch."""

from .overrides import (
    apply_settings,
    change_settings,
    differing_settings,
    left_open,
    load_preset,
    recorded_settings,
)
from .settings import CleaningSettings, Config, GraphSettings, MethodChoice, OodSettings, TrainingSettings

__all__ = [
    "CleaningSettings",
    "Config",
    "GraphSettings",
    "MethodChoice",
    "OodSettings",
    "TrainingSettings",
    "apply_settings",
    "change_settings",
    "differing_settings",
    "left_open",
    "load_preset",
    "recorded_settings",
]
