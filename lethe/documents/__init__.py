"""Strict YAML and JSON, folders that are written whole or not at all, and the base of all specifications."""
