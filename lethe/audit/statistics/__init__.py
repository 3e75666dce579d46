"""Statistics of audits: lower bounds on epsilon from what was observed. They share nothing with the theorems but arithmetic."""
