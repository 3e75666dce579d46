"""A PostgreSQL server of the tests' own, where its programs are installed; on a socket in a temporary folder, with no password to keep."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")


def _program(name: str) -> str:
    # Debian keeps the programs of each version in a folder of its own, which is on nobody's path.
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))])
    return shutil.which(name, path=path) or pytest.skip(f"no PostgreSQL server is installed ({name})")


def _as_somebody(folder: Path) -> list[str]:
    """What a command begins with, so that the server is not run by root, which it refuses."""
    if os.geteuid() != 0:
        return []
    for user in ("postgres", "nobody") if shutil.which("runuser") else ():
        if subprocess.run(["runuser", "-u", user, "--", "true"], capture_output=True, check=False).returncode == 0:
            shutil.chown(folder, user)
            return ["runuser", "-u", user, "--"]
    pytest.skip("a PostgreSQL server is not run by root, and there is no runuser to run it as somebody else")


class Server:
    """A PostgreSQL server that was started for tests."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._as, self._process, self._databases = folder, _as_somebody(folder), None, 0
        options = ["-D", str(folder / "data"), "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        done = subprocess.run([*self._as, _program("initdb"), *options], cwd="/", capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"initdb does not run here: {done.stderr[-200:]}")
        self.start()

    def start(self) -> None:
        options = ["-D", str(self._folder / "data"), "-k", str(self._folder), "-c", "listen_addresses=", "-c", "max_connections=80"]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen([*self._as, _program("postgres"), *options], cwd="/", stdout=log, stderr=log)
        for _ in range(1200):  # a minute: after a crash, on a busy machine
            if self._answers():
                return
            time.sleep(0.05)
        raise AssertionError((self._folder / "log").read_text()[-2000:])

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(host=str(self._folder), user="tester", dbname="postgres", connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, *, at_once: bool = False) -> None:
        # The server's own process, whose number it writes down; the one that was started here may be runuser.
        number = int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(number, 3 if at_once else 2)
        assert self._process is not None
        self._process.wait(timeout=30)

    def database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._databases += 1
        name = f"ledger_{self._databases}"
        with psycopg.connect(host=str(self._folder), user="tester", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportArgumentType]
        return f"postgresql://tester@/{name}?host={self._folder}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    pytest.importorskip("psycopg")
    folder = Path(tempfile.mkdtemp(prefix="lethe-pg-"))
    folder.chmod(0o700)
    try:
        server = Server(folder)
        yield server
        server.stop(at_once=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger can be made: in both databases."""
    return str(tmp_path / "ledger.sqlite") if request.param == "sqlite" else request.getfixturevalue("postgres").database()
