"""`lethe audit`: from a configuration to a certificate and audits of it, side by side."""

from lethe.audit_job.job import AuditJob
from lethe.audit_job.outcome import AuditOutcome

__all__ = ["AuditJob", "AuditOutcome"]
