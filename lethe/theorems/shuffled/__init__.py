"""A fresh secret order in every pass: the law of the privacy loss over the record's positions."""
