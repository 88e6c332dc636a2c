"""Sources: what people bring, and the data that comes with the package."""
