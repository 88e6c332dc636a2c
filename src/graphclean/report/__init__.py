"""A run as one HTML file that opens offline."""

from .build import Report, write_report

__all__ = ["Report", "write_report"]
