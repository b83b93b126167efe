"""The app's own topics: what they must be, and reading what is in them."""
