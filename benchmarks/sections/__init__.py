"""The sections of the page of benchmarks, each made from recorded results."""
