"""Many tensors at once: small ones in one vector, and copies that are compared bit by bit."""
