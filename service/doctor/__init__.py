"""The search for what could go wrong with an app on a cluster, before it does: `doctor`."""
