"""What `chaos.py` does to graphclean: kills, full disks, crowds, broken inputs, raw requests."""
