"""Data sources: users' own data, and the data that ships with the package."""
