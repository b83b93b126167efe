"""Kafka by aiokafka: everything that imports the client is in this folder."""
