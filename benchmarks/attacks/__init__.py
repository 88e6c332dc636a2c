"""The attacks of `chaos.py` on graphclean: kills, full disks, concurrency, broken inputs, raw requests."""
