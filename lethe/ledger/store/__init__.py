"""Storing: the database, its tables, and the versions of its schema."""
