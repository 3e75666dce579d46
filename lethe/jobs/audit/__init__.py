"""`lethe audit`: from a configuration to a certificate and audits of it, side by side."""

from lethe.jobs.audit.job import AuditJob
from lethe.jobs.audit.outcome import AuditOutcome
