"""The way out of a FAILED partition when a person, not a program, must decide: `accept`."""
