"""How hypothesis runs: no deadlines (machines are shared), the same examples in CI every time, fresh ones everywhere else."""

import os

from hypothesis import settings

settings.register_profile("lethe", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("lethe")
