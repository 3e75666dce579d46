"""Lethe among other accountants: certificates as dp_accounting events, and an accountant that adds runs to such events.

Importing this package loads dp_accounting; `import lethe` alone does not.
"""

import importlib.util

from lethe.errors import MissingExtraError

if not all(map(importlib.util.find_spec, ("dp_accounting", "attr"))):
    raise MissingExtraError("lethe.integrations.dp_accounting needs dp_accounting.", remedy='pip install "lethe-dp[dp-accounting]"')

from lethe.integrations.dp_accounting.accountant import IterateDpEvent, LastIterateDpEvent, LetheAccountant
from lethe.integrations.dp_accounting.events import to_dp_event

__all__ = ["IterateDpEvent", "LastIterateDpEvent", "LetheAccountant", "to_dp_event"]
