"""The ledger: what a data set has left of its privacy budget, for a team, in a database.

ledger = Ledger.open("ledger.sqlite", make=True)
ledger.create("patients", neighbours="replace_one", budget=Budget(epsilon=3, delta=1e-6))
ticket = ledger.reserve("patients", certificate, by="team A")
...                                                # train, release
ledger.settle(ticket, certificate, artefact=sha256)
"""

from functools import partial

from lethe.errors import MissingExtraError
from lethe.errors.names import refuse_old_name

try:
    import alembic
    import sqlalchemy
except ImportError as error:  # said here, in words of ours
    raise MissingExtraError("lethe.ledger needs SQLAlchemy and Alembic.", remedy='pip install "lethe-dp[ledger]"') from error
else:
    del alembic, sqlalchemy

from lethe.ledger.budgets import Budget
from lethe.ledger.ledger import Ledger
from lethe.ledger.spender import Spending, spending

__all__ = ["Budget", "Ledger", "Spending", "spending"]

__getattr__ = partial(refuse_old_name, __name__)
