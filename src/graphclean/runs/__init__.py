"""The run folder, and the jobs that make one or read one."""
