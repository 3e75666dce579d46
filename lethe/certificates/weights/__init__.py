"""Released weights: what identifies them, whatever file they are kept in."""

from lethe.certificates.weights.digest import FORMAT, RawTensor, canonical_chunks, tensors_digest
from lethe.certificates.weights.files import as_tensors, read_weights
