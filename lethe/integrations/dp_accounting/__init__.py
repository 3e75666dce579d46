"""Lethe among other accountants: certificates as dp_accounting events, and an accountant that adds runs to such events.

Importing this package loads dp_accounting; `import lethe` alone does not.
"""

from lethe.integrations.dp_accounting.accountant import LetheAccountant
from lethe.integrations.dp_accounting.events import to_dp_event
from lethe.integrations.dp_accounting.releases import IterateDpEvent, LastIterateDpEvent

__all__ = ["IterateDpEvent", "LastIterateDpEvent", "LetheAccountant", "to_dp_event"]
