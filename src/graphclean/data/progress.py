"""What a long job reports to whoever shows it."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Of a stage: how much is done, and how much there is."""
