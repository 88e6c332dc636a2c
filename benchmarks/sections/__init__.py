"""The sections of the benchmarks page, each generated from recorded results."""
