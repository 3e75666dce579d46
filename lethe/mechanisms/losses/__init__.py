"""Losses of linear models as the mechanisms use them: values, slopes and curvatures in the scores."""
