"""What a model holds besides its trained parameters: buffers, attributes, flags and random generators."""
