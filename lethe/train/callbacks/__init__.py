"""Callbacks of training: what they are told, and how they are called."""
