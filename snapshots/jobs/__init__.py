"""The jobs that run on Spark. The only place that imports pyspark."""
