"""`doctor`: what could go wrong with an app on a cluster, looked for before it does."""
