"""The command line: option names, screens and progress bars."""
