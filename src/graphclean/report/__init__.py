"""A run as one HTML file that works offline."""

from .build import Report, write_report

__all__ = ["Report", "write_report"]
