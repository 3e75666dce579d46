"""Training in several processes over `torch.distributed`."""
