"""The command line: the only place that builds things."""


def main() -> int:
    """Entry point of the `postledger` command."""
    return 0
