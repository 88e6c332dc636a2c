"""The paper's benchmarks: cells, the runner, and the ledger of results."""
