"""The paper's benchmarks: what was recorded, beside what the paper reports."""
