"""The paper's benchmarks: cells, the runner, and recorded results."""
