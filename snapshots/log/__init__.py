"""Reads an app's log without IO: records in; batches, states and errors out. Recovery, audit and jobs pump it. Pure."""
