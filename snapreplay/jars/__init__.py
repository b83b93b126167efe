"""Java, and the jars that Maven fetches for the local broker and for Spark."""
