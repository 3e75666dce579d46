"""The report of a training, for whoever reads or signs it; tables and plots of numbers computed elsewhere.

lethe.report.write(certificate, "report.html")
"""

from lethe.report.document.curves import Curve
from lethe.report.document.writing import write

__all__ = ["Curve", "write"]
