"""Run folders, and the jobs that write and read them."""
