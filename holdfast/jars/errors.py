"""What is raised where Java or jars are missing, or a lock is held."""


class JarsUnavailable(Exception):
    """Java or a set of jars that this machine lacks; the text is one sentence that names the fix."""


class LockHeld(Exception):
    """A lock that other processes held for the whole timeout; the text is one sentence that names the fix."""
