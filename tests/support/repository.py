"""Where the repository is: tests read its pages, its examples and its code."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
