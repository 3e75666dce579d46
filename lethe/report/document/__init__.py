"""The report of a run, a certificate or a statement: read, said in sections, and written in a format."""
