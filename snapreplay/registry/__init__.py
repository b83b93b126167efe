"""Codecs for records in the formats of a schema registry. The extra `snapreplay[registry]` has what it needs."""
