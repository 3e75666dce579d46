"""The last iterate for losses with a Hölder continuous gradient."""
