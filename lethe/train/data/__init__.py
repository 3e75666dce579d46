"""Data at scale: sources that need not fit in memory, and the batches of a run read from them.

Which records are in the batch of which step comes from the Run alone, since that is part of the privacy guarantee.
"""
