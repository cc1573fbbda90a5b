"""What the client programs share: a schema of their own, comparisons, and a count of them at the end."""

import atexit
import sys

_done = 0


def same(what, got, want):
    """Fails the program when got is not want."""
    global _done
    if got != want:
        print(f"{what}: got {got!r}, want {want!r}", file=sys.stderr)
        sys.exit(1)
    _done += 1


def raises(what, sqlstate, kind, f):
    """Fails the program when f does not raise an error of kind with the SQLSTATE."""
    try:
        f()
    except kind as e:
        state = getattr(e, "sqlstate", None) or getattr(e, "pgcode", None) or getattr(getattr(e, "orig", None), "sqlstate", None)
        same(what, state, sqlstate)
        return
    same(what, "no error", sqlstate)


@atexit.register
def _report():
    print(f"{_done} checks")
