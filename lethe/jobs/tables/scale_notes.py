"""Words on features whose scale makes a model useless, from public facts alone: what was stated, never what stands in the records."""

from __future__ import annotations

from lethe.jobs.tables.public_columns import PublicColumns

NOT_SCALED = (
    "no ranges are stated, so the numbers are used as they stand: where columns have different units, the largest is all that is learned "
    "from. State columns: (`lethe init --data FILE --target COLUMN` asks for them), or divide by publicly known ranges first."
)
_FAR = 1.5


def scale_notes(feature_norm: float | None, columns: PublicColumns | None) -> list[str]:
    """What to say of it.

    Args:
        feature_norm: the public bound on the norm of a row; None: it is released.
        columns: what was stated of the columns; None: nothing.
    """
    if columns is None:
        return [NOT_SCALED]
    if feature_norm is not None and feature_norm > _FAR * columns.longest:
        return [
            f"feature_norm = {feature_norm:g} is far above {columns.longest:.3g}, which no row of {len(columns.kept)} columns exceeds "
            f"after scaling: noise grows with it. State {columns.longest:.3g} or less."
        ]
    return []
