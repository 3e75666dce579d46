"""The state of a model besides its trained parameters: buffers, attributes, flags and random generators."""
