"""Client, sandboxes and what is in them, as they are written: for an event loop.  Those for threads, in _sync, are made of them by setup.py."""
