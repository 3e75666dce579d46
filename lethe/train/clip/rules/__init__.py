"""Rules of layers: from what a layer was given and the gradient of what it gave to the gradients of its parameters."""
